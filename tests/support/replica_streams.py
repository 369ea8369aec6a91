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
        self._reached = dict.fromkeys(NAMES, 0)

    @property
    def seconds(self) -> int:
        """Up to where all of them are complete."""
        return min(self._reached.values())

    def go_on(self, seconds: int, *names: str) -> None:
        """All streams, or those that are named, go on for so long, and say that they are complete
        up to then."""
        for place, (name, writer) in enumerate(self._writers.items()):
            if names and name not in names:
                continue
            begin = self._reached[name]
            rows = [
                {"time": at(second + 0.1 * n), "item": (n + place) % _ITEMS, "price": second * n}
                for second in range(begin, begin + seconds)
                for n in range(10)
            ]
            writer.append(pa.Table.from_pylist(rows, schema=SCHEMA))
            writer.heartbeat(at(begin + seconds))
            self._reached[name] += seconds

    def add(self, name: str, row: dict[str, Any]) -> None:
        """A row of one of them; what comes to it before its time is late from then on."""
        self._writers[name].append(pa.Table.from_pylist([row], schema=SCHEMA))

    def windows(self, *names: str) -> Windows:
        """All windows that have ended, by plain counting; those of the streams that are named."""
        counts: Counter[tuple[int, int]] = Counter()
        sums: Counter[tuple[int, int]] = Counter()
        end = min(self._reached[name] for name in names or NAMES)
        for place, name in enumerate(NAMES):
            for second in range(end // REPLICA_WINDOW_S * REPLICA_WINDOW_S):
                for n in range(10) if name in (names or NAMES) else ():
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
