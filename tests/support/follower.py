"""Who follows replicas on simulated disks, behind lines that are cut and mended: a query without
Spark, which is stopped and repeats the batch that it had planned."""

from __future__ import annotations

import errno
import json
import random
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Generic, TypeVar

import pyarrow as pa

from tests.support.replicas import READER, Replica, assert_begin_alike, random_sliced
from tests.support.unreachable import Hands, Line
from trailmark.errors import StorageError
from trailmark.kernel.columns import contiguous
from trailmark.operators.kinds import form_of
from trailmark.streams.replicas.choosing import Replicas
from trailmark.streams.replicas.positions import Position, position_from_json, position_to_json

_CUTS = (errno.EHOSTUNREACH, errno.EIO)


ProcessT = TypeVar("ProcessT", bound=Replicas)


class InProcesses(ABC, Generic[ProcessT]):
    """Whoever follows replicas in one process after another, by a clock of its own."""

    rng: random.Random
    lines: Mapping[str, Line]
    _kind: type[ProcessT]
    _process: ProcessT
    _now_us = 0.0

    def _start(self) -> None:
        """A new process, which knows what Spark's checkpoint says and nothing else."""
        self._process = self._kind(
            {name: line.storage() for name, line in self.lines.items()},
            hands=Hands(),
            now_us=lambda: self._now_us,
            clock=lambda: 0,
        )

    def step(self) -> bool:
        """A batch; whether there was one. What cannot be read ends the process."""
        self._now_us += self.rng.choice((1_000, 100_000, 3_000_000))
        try:
            return self._batch()
        except StorageError:
            self._start()
            return True

    @abstractmethod
    def _batch(self) -> bool:
        """The same, where all can be read."""


@dataclass
class Follower(InProcesses[Replicas]):
    """Reads the results of replicas, batch by batch.

    Attributes
    ----------
    results
        What each bucket has got.
    repeated, switches
        How many batches were read twice, and how often one was read from another replica than the
        one before.
    """

    _kind = Replicas

    replicas: list[Replica]
    rng: random.Random
    results: list[list[pa.RecordBatch]] = field(init=False)
    repeated: int = 0
    switches: int = 0

    def __post_init__(self) -> None:
        self.lines = {
            f"replica {place}": Line(each.query.disk) for place, each in enumerate(self.replicas)
        }
        self.results = [[] for _ in range(self.replicas[0].buckets)]
        self._position: Position | None = None
        self._planned: str | None = None
        self._path = ""
        self._start()

    def _batch(self) -> bool:
        if self._position is None:
            self._position = self._process.before_all()
        if self._position is None:
            return False
        # Results are kept from here on, in those that can be reached.
        self._process.acknowledge(READER, self._position)
        if self._planned is None and not self._plan(self._position):
            return False
        rows = self._read()
        if self.rng.random() < 0.2:
            self._start()
            cut_and_mend(self.lines, self.rng)
            self.repeated += 1
            again = self._read()
            assert [each.equals(other) for each, other in zip(rows, again, strict=True)]
        for bucket, found in enumerate(rows):
            self.results[bucket].append(found)
        assert self._planned is not None
        self._position = position_from_json(json.loads(self._planned))
        self._planned = None
        return True

    def _plan(self, position: Position) -> bool:
        seen = self._process.look()
        path = self._process.choose(position, seen)
        if path is None:
            return False
        end = seen[path].given
        if self.rng.random() < 0.3:
            end = self._process.admitted(path, position, seen[path], self.rng.randint(1, 20))
        if end == position:
            return False
        self.switches += path != self._path
        self._planned, self._path = json.dumps(position_to_json(end)), path
        return True

    def _read(self) -> list[pa.RecordBatch]:
        """The rows of the batch that is planned, by bucket."""
        assert self._position is not None
        assert self._planned is not None
        end = position_from_json(json.loads(self._planned))
        cut_and_mend(self.lines, self.rng)
        planned = self._process.plan(self._position, end, self._path)
        cut_and_mend(self.lines, self.rng)
        columns = self._schema().names
        found: list[list[pa.RecordBatch]] = [[] for _ in self.results]
        for path, pieces in planned.items():
            for piece in pieces:
                found[piece.bucket] += self._process.read(path, piece, columns)
        return [contiguous(pa.Table.from_batches(each, self._schema())) for each in found]

    def _schema(self) -> pa.Schema:
        first = self._process.first()
        assert first is not None
        return first.schema


def cut_and_mend(lines: Mapping[str, Line], rng: random.Random) -> None:
    """One line at most is cut: with none there is nothing to follow."""
    if rng.random() < 0.5:
        return
    for line in lines.values():
        line.mend()
    if rng.random() < 0.5:
        line = rng.choice(list(lines.values()))
        line.cut(rng.choice(_CUTS), rng.randrange(6))


def run_follower(seed: int) -> Follower:
    """Two replicas of a random case and who follows them, in any order."""
    rng = random.Random(seed)
    sliced, buckets = random_sliced(rng), rng.choice((1, 1, 2, 3))
    chance = rng.choice((0.0, 0.3))
    replicas = [Replica(sliced, buckets, random.Random(rng.random()), chance) for _ in range(2)]
    follower = Follower(replicas, rng)
    going = {place: each.steps() for place, each in enumerate(replicas)}
    while going:
        place = rng.choice((*going, None))
        if place is None:
            follower.step()
        elif next(going[place], None) is None:
            del going[place]
    for line in follower.lines.values():
        line.mend()
    follower.rng = random.Random(0)
    while follower.step():
        for line in follower.lines.values():
            line.mend()
    _check(follower)
    return follower


def _check(follower: Follower) -> None:
    """It has all results that one of the replicas has committed, each once, in their order."""
    process = follower._process
    seen = process.look()
    furthest = max(seen.values(), key=lambda each: each.results)
    for bucket, found in enumerate(follower.results):
        given = furthest.given[bucket].rows
        got = sum(each.num_rows for each in found)
        assert got == given, f"bucket {bucket}: {got} results of {given}"
        if found:
            for each in follower.replicas:
                assert_begin_alike(found, _shown(process, each.results[bucket]), f"bucket {bucket}")


def _shown(process: Replicas, logged: list[pa.RecordBatch]) -> list[pa.RecordBatch]:
    """Results as readers see them."""
    first = process.first()
    assert first is not None
    form = form_of(first.meta)
    return [contiguous(form.shown(pa.Table.from_batches([each]))) for each in logged]
