"""Two streams that replicas read, which go on by seconds, and what the windows over them are."""

from __future__ import annotations

from collections import Counter
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pyarrow as pa

import trailmark as tm
from tests.support.spark_query import Query
from tests.support.spark_union import NAMES, REPLICA_WINDOW_S

START = datetime(2026, 1, 1, tzinfo=timezone.utc)
SCHEMA = pa.schema(
    [("time", pa.timestamp("us", "UTC")), ("item", pa.int32()), ("price", pa.int64())]
)
_ITEMS = 5

#: Item, begin of the window in seconds, count and sum.
Windows = Counter[tuple[Any, ...]]


def at(seconds: float) -> datetime:
    return START + timedelta(seconds=seconds)


class Streams:
    """The streams below a directory."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._writers = {
            name: tm.stream_writer(
                root / name, SCHEMA, name=name, time_column="time", delay="0 seconds"
            )
            for name in NAMES
        }
        self.seconds = 0

    def go_on(self, seconds: int) -> None:
        """All streams go on for so long, and say that they are complete up to then."""
        for place, writer in enumerate(self._writers.values()):
            rows = [
                {"time": at(second + 0.1 * n), "item": (n + place) % _ITEMS, "price": second * n}
                for second in range(self.seconds, self.seconds + seconds)
                for n in range(10)
            ]
            writer.append(pa.Table.from_pylist(rows, schema=SCHEMA))
            writer.heartbeat(at(self.seconds + seconds))
        self.seconds += seconds

    def add(self, name: str, row: dict[str, Any]) -> None:
        """A row of one of them; what comes to it before its time is late from then on."""
        self._writers[name].append(pa.Table.from_pylist([row], schema=SCHEMA))

    def windows(self) -> Windows:
        """All windows that have ended, by plain counting."""
        counts: Counter[tuple[int, int]] = Counter()
        sums: Counter[tuple[int, int]] = Counter()
        for place in range(len(self._writers)):
            for second in range(self.seconds // REPLICA_WINDOW_S * REPLICA_WINDOW_S):
                for n in range(10):
                    begin = second // REPLICA_WINDOW_S * REPLICA_WINDOW_S
                    counts[(n + place) % _ITEMS, begin] += 1
                    sums[(n + place) % _ITEMS, begin] += second * n
        return Counter((*key, counts[key], sums[key]) for key in counts)


def replica_query(root: Path, name: str) -> Query:
    """One of the queries over the streams below ``root/in``."""
    return Query(
        name,
        str(root / "in"),
        str(root / name / "counts"),
        str(root / name / "check"),
        "",
        "",
        "",
        "replica",
    )
