"""What the steps of `tests.support.stream_query` are given, and what must come out of them."""

from __future__ import annotations

import os
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from tests.support.oracle import Oracle, Row
from tests.support.stream_query import KEYS, VALUES, WINDOW
from trailmark.records import NO_BATCH
from trailmark.streams.table import read_table

_SCHEMA = pa.schema(
    [("id", pa.int64()), ("key", pa.int32()), ("time", pa.timestamp("us", tz="UTC"))]
)


@dataclass
class Numbers:
    """Files of numbered rows in a directory; the file source takes them in their order."""

    directory: Path
    rows: int = 40
    files: list[list[int]] = field(default_factory=list)

    def feed(self, count: int) -> None:
        self.directory.mkdir(parents=True, exist_ok=True)
        for _ in range(count):
            number = len(self.files)
            ids = [self.rows * number + n for n in range(self.rows)]
            table = pa.table(
                [ids, [_key(number)] * len(ids), [1_000_000 * n for n in ids]], schema=_SCHEMA
            )
            aside = self.directory.parent / f"{self.directory.name}.{number}.unfinished"
            pq.write_table(table, aside)
            os.utime(aside, (1_700_000_000 + 10 * number,) * 2)
            aside.rename(self.directory / f"{number:06d}.parquet")
            self.files.append(ids)

    @property
    def ids(self) -> list[int]:
        return [n for file in self.files for n in file]


def _key(file: int) -> int:
    return file % KEYS


def ids_in(path: Path | str) -> list[int]:
    """The numbers of all rows of a stream, in order, each as often as it is there."""
    return sorted(read_table(path, columns=["id"]).column(0).to_pylist())


def assert_has_each_once(path: Path | str, numbers: Numbers) -> None:
    found = Counter(ids_in(path))
    twice = sorted(n for n, times in found.items() if times > 1)
    lost = sorted(set(numbers.ids) - set(found))
    assert not twice, f"{path}: twice {twice[:50]}"
    assert not lost, f"{path}: lost {lost[:50]}"
    assert len(found) == len(numbers.ids)


def expected_results(rows: list[Row]) -> Counter[tuple[int, int, int]]:
    """What the oracle gives for rows that arrive in this order."""
    oracle = Oracle(_SCHEMA, by=["key"], window=WINDOW, values=VALUES)
    outcome = oracle.process(0, rows, None, None)
    published = oracle.published(outcome.results)
    return Counter((row["key"], row["n"], row["total"]) for row in published)


def newest_commit(checkpoint: str) -> int:
    """The newest batch that Spark has committed."""
    return _newest(checkpoint, "commits")


def is_interrupted(checkpoint: str) -> bool:
    """Whether a batch was planned and not committed."""
    return _newest(checkpoint, "offsets") > newest_commit(checkpoint)


def _newest(checkpoint: str, log: str) -> int:
    try:
        names = os.listdir(f"{checkpoint}/{log}")
    except FileNotFoundError:
        return NO_BATCH
    return max((int(name) for name in names if name.isdigit()), default=NO_BATCH)
