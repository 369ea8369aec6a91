"""Who follows replicas with their tentative results, on simulated disks behind lines that are cut:
a query without Spark, which is stopped and repeats the batch that it had planned.

The judge knows what each replica had given at the end of every batch. What the follower has, as
whoever applies its change feed sees it, has to be just that of the replica that it follows.
"""

from __future__ import annotations

import json
import random
from collections import Counter
from dataclasses import dataclass, field

import pyarrow as pa

from tests.support.failing_replicas import FailingReplica, Row, digests
from tests.support.follower import InProcesses, cut_and_mend
from tests.support.replicas import READER, assert_begin_alike, random_sliced
from tests.support.unreachable import Line
from trailmark.errors import TrailmarkError
from trailmark.kernel.columns import contiguous
from trailmark.streams.answers import Answers
from trailmark.streams.replicas.answering import AnsweringReplicas
from trailmark.streams.replicas.place import Place
from trailmark.streams.replicas.shown import Decision, Shown


class _Process(AnsweringReplicas):
    """Remembers whether it has left out tentative results that could not be read."""

    has_left_out = False

    def _leave_out(self, path: str, error: TrailmarkError) -> None:
        self.has_left_out = True
        super()._leave_out(path, error)


@dataclass(frozen=True)
class _Batch:
    """What a batch gives: an undo, results that stand by bucket, and tentative ones."""

    undo: int | None
    stable: list[pa.RecordBatch]
    tentative: list[tuple[int, Row]]
    is_whole: bool


@dataclass
class AnsweredFollower(InProcesses[_Process]):
    """Reads all results of replicas, batch by batch.

    Attributes
    ----------
    away
        The one that cannot be reached for longer.
    undone, behind, left_out, repeated
        How often what was tentative became void, a replica was followed that had not come as far,
        something tentative could not be read, and a batch was read twice.
    """

    _kind = _Process

    replicas: list[FailingReplica]
    rng: random.Random
    undone: int = 0
    behind: int = 0
    left_out: int = 0
    repeated: int = 0
    away: str | None = None
    stable: list[list[pa.RecordBatch]] = field(init=False)
    tentative: list[tuple[int, Row]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.lines = {
            f"replica {number}": Line(each.query.disk) for number, each in enumerate(self.replicas)
        }
        #: All that there ever were, by their logs.
        self._known = {each.log: each for each in self.replicas}
        self.stable = [[] for _ in range(self.replicas[0].buckets)]
        self._place: Place | None = None
        self._planned: str | None = None
        self._complete_us: int | None = None
        #: Decisions of which something tentative could not be read.
        self._gaps: set[int] = set()
        self._start()

    def replace(self, number: int, replica: FailingReplica) -> None:
        """One of them is made anew."""
        self.replicas[number] = self._known[replica.log] = replica
        self.lines[f"replica {number}"].disk = replica.query.disk

    def _batch(self) -> bool:
        if self._place is None:
            before_all = self._process.before_all()
            if before_all is None:
                return False
            self._place = Place(before_all)
        self._process.acknowledge(READER, self._place.position)
        if self._planned is None and not self._plan(self._place):
            return False
        assert self._planned is not None
        end = Place.from_json(json.loads(self._planned))
        batch = self._read(self._place, end)
        if self.rng.random() < 0.2:
            self._start()
            self._cut_and_mend()
            self.repeated += 1
            again = self._read(self._place, end)
            assert again.undo == batch.undo
            for one, other in zip(again.stable, batch.stable, strict=True):
                assert one.num_rows == other.num_rows
                assert_begin_alike([one], [other], "read again")
            if batch.is_whole and again.is_whole:
                assert again.tentative == batch.tentative
            batch = again
        self._apply(batch, end)
        self._place, self._planned = end, None
        self._check(end)
        return True

    def _plan(self, place: Place) -> bool:
        most = self.rng.choice((None, None, self.rng.randint(1, 20)))
        end = self._process.next(place, self._process.look(), most)
        if end is None:
            return False
        assert end.told.number == place.told.number + 1
        self._planned = json.dumps(end.to_json())
        return True

    def _read(self, start: Place, end: Place) -> _Batch:
        self._cut_and_mend()
        process, process.has_left_out = self._process, False
        pieces = process.plan(start.position, end.position, end.path)
        suffix = process.plan_suffix(end.suffix)
        self._cut_and_mend()
        first = process.first()
        assert first is not None
        shown, own = Shown(first.schema, Answers.CHANGES), first.schema.names
        stable: list[list[pa.RecordBatch]] = [[] for _ in self.stable]
        for path, each in pieces.items():
            for piece in each:
                stable[piece.bucket] += shown.stable(process, path, piece, own)
        found: list[tuple[int, Row]] = []
        decision = Decision.of(end)
        for place in suffix:
            for rows in shown.tentative(process, end.suffix, place, shown.schema.names, decision):
                assert rows["tentative"].to_pylist() == [True] * rows.num_rows
                versions = rows["_commit_version"].to_pylist()
                found += zip(versions, digests(rows.select(own)), strict=True)
        whole = [contiguous(pa.Table.from_batches(each, first.schema)) for each in stable]
        return _Batch(end.undoes(start), whole, found, not process.has_left_out)

    def _cut_and_mend(self) -> None:
        cut_and_mend(self.lines, self.rng)
        if self.away is not None:
            self.lines[self.away].cut()

    def _apply(self, batch: _Batch, end: Place) -> None:
        """As whoever keeps a table by the feed does."""
        if batch.undo is not None:
            self.undone += 1
            self.tentative = [each for each in self.tentative if each[0] >= batch.undo]
            self._gaps = {each for each in self._gaps if each >= batch.undo}
        assert all(version < end.told.number for version, _ in self.tentative)
        for bucket, rows in enumerate(batch.stable):
            self.stable[bucket].append(rows)
        self.tentative += batch.tentative
        if not batch.is_whole:
            self._gaps.add(end.told.number)
            self.left_out += 1

    def _check(self, end: Place) -> None:
        """What stands now is what stood of one replica."""
        suffix, replica = end.suffix, self._known[end.told.log]
        given = replica.record[suffix.batches.stop - 1]
        results = tuple(each.rows for each in end.position)
        assert results == tuple(sum(map(len, rows)) for rows in self.stable)
        is_behind = sum(given.results) < sum(results)
        if is_behind:
            self.behind += 1
        else:
            assert given.results == results
            if replica.sliced.case.operator().ports[0].event_time is not None:
                known = given.complete_us if self._complete_us is None else self._complete_us
                self._complete_us = max(known, given.complete_us)
        wanted = replica.standing(suffix.batches.stop, self._complete_us, is_behind=is_behind)
        found = Counter(row for _, row in self.tentative)
        if not self._gaps:
            assert found == wanted, f"{suffix}: {found - wanted} too many, {wanted - found} missing"
        else:
            assert not found - wanted


def run_answered_follower(seed: int) -> AnsweredFollower:
    """Two replicas of a random case, which fail and are made anew, and who follows them."""
    rng = random.Random(seed)
    sliced, buckets = random_sliced(rng), rng.choice((1, 1, 2, 3))
    chance = rng.choice((0.0, 0.3))

    def made() -> FailingReplica:
        return FailingReplica(sliced, buckets, random.Random(rng.random()), chance)

    follower = AnsweredFollower([made() for _ in range(2)], rng)
    going = {number: each.steps() for number, each in enumerate(follower.replicas)}
    while going:
        number = rng.choice((*going, *going, None, None))
        if number is None:
            follower.step()
        elif rng.random() < 0.01:
            follower.replace(number, made())
            going[number] = follower.replicas[number].steps()
        elif rng.random() < 0.05:
            follower.away = rng.choice((None, *follower.lines))
        else:
            for _ in range(rng.choice((1, 1, 5))):  # the other one stands still meanwhile
                if next(going[number], None) is None:
                    del going[number]
                    break
    follower.away = None
    for line in follower.lines.values():
        line.mend()
    follower.rng = random.Random(0)
    while follower.step():
        for line in follower.lines.values():
            line.mend()
    _check_end(follower)
    return follower


def _check_end(follower: AnsweredFollower) -> None:
    """It has all results that stand of the furthest replica, each once, in order, and nothing that
    is tentative."""
    assert not follower.tentative
    furthest = max(follower.replicas, key=lambda each: sum(one.rows for one in each.given))
    for bucket, found in enumerate(follower.stable):
        assert sum(map(len, found)) == furthest.given[bucket].rows
        if found:
            assert_begin_alike(found, furthest.shown_results(bucket), f"bucket {bucket}")
