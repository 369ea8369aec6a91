"""Processes that each write a stream of their own without Spark, to be stopped, killed and started
again.

``python -m tests.support.ingesting PATH SEED PLACE BEGAN`` writes four batches a second until it is
told to end. A batch is made from the seed, the place and its number alone, and the stream knows how
many there are: so whoever was killed goes on with the next one, and what a stream has to hold is
known without it. What was due while a process stood still comes at once when it goes on.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa

import trailmark as tm
from trailmark.streams.own_writer import OwnWriter

START = datetime(2026, 1, 1, tzinfo=timezone.utc)
_REPOSITORY = Path(__file__).parents[2]
_TIME = pa.timestamp("us", "UTC")
_SCHEMA = pa.schema([("id", pa.int64()), ("key", pa.int32()), ("time", _TIME)])
_KEYS = 5
#: How often there is a batch, which is a second of event time.
_TURN_S = 0.25
_PATIENCE_S = 60.0


class Ingested(NamedTuple):
    """A row: its time in seconds, the place of its stream, and what it is."""

    at_s: float
    place: int
    number: int
    key: int


def rows_of(seed: int, place: int, batch: int) -> list[Ingested]:
    """The rows of a batch; none is later than the delay of its stream."""
    rng = random.Random(f"{seed} {place} {batch}")
    count = rng.randint(1, 6)
    found = []
    for n in range(count):
        at_s = round(max(0.0, batch + n / count - rng.choice([0, 0, 1.5, 3.9])), 6)
        number = place * 1_000_000 + batch * 10 + n
        found.append(Ingested(at_s, place, number, rng.randrange(_KEYS)))
    return found


def _opened(path: str) -> OwnWriter:
    return tm.stream_writer(
        path,
        _SCHEMA,
        name="ingester",
        time_column="time",
        delay="4 seconds",
        durability="unsynced",
    )


def _main(path: str, seed: int, place: int, began: float) -> None:
    ends: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _: ends.append(number))
    writer, parent = _opened(path), os.getppid()
    while not ends:
        if os.getppid() != parent:
            return  # nobody is left who would end it
        due = int((time.time() - began) / _TURN_S)
        for batch in range(writer.last + 1, due):
            rows = rows_of(seed, place, batch)
            times = pa.array([START + timedelta(seconds=row.at_s) for row in rows], _TIME)
            columns = [[row.number for row in rows], [row.key for row in rows], times]
            writer.append(pa.table(columns, schema=_SCHEMA), batch)
        time.sleep(_TURN_S / 4)
    writer.heartbeat(START + timedelta(days=1))


class Ingester:
    """A process that writes a stream."""

    def __init__(self, path: Path, seed: int, place: int, began: float) -> None:
        self.path = str(path)
        self._seed, self._place, self._began = seed, place, began
        _opened(self.path)  # whoever reads finds a stream
        self.start()

    def start(self) -> None:
        """Also again, when it was killed."""
        arguments = [self.path, str(self._seed), str(self._place), str(self._began)]
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.support.ingesting", *arguments],
            cwd=_REPOSITORY,
            env={**os.environ, "PYTHONPATH": str(_REPOSITORY)},
        )

    def stop(self) -> None:
        self._process.send_signal(signal.SIGSTOP)

    def go_on(self) -> None:
        self._process.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        self._process.kill()
        assert self._process.wait(_PATIENCE_S) == -signal.SIGKILL, "it had ended before"

    def end(self) -> None:
        """It says that nothing more comes for a long time."""
        self._process.terminate()
        assert self._process.wait(_PATIENCE_S) == 0

    def close(self) -> None:
        self._process.kill()
        self._process.wait(_PATIENCE_S)

    def rows(self) -> list[Ingested]:
        """What the stream holds, in its order: each of its batches once."""
        table = tm.read_table(self.path)
        made = range(_opened(self.path).last + 1)
        rows = [row for batch in made for row in rows_of(self._seed, self._place, batch)]
        assert table["id"].to_pylist() == [row.number for row in rows]
        assert table["key"].to_pylist() == [row.key for row in rows]
        times = [(at - START).total_seconds() for at in table["time"].to_pylist()]
        assert times == [row.at_s for row in rows]
        return rows


@contextmanager
def ingesting(root: Path, names: Sequence[str], seed: int) -> Iterator[Mapping[str, Ingester]]:
    """One process for each name, in this order."""
    began = time.time()
    running: dict[str, Ingester] = {}
    try:
        for place, name in enumerate(names):
            running[name] = Ingester(root / name, seed, place, began)
        yield running
    finally:
        for each in running.values():
            each.close()


if __name__ == "__main__":
    _main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4]))
