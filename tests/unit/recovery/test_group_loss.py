"""Windows in groups, with loss accepted: a damaged segment loses what its groups got since they
were written before, and nothing else; what is too much for a window is dropped."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import pytest

from tests.support.engine import Query
from tests.support.grouping import GroupedCase, random_grouped
from tests.support.harm import flip_in
from tests.support.oracle import Identity, Row
from tests.support.plain import plain_rows
from tests.support.seeds import reported, seeds
from trailmark.checkpoint.policy import Incremental
from trailmark.kernel.columns import contiguous
from trailmark.log import Segment
from trailmark.operators.join.state import JoinState
from trailmark.records import OPENED, FrameKind, Loss, Stream
from trailmark.recovery import RecoveryReport
from trailmark.recovery.lost import Lost
from trailmark.testing.disk import SimulatedDisk


class _Watched:
    """A query that accepts loss, and what its segments hold."""

    def __init__(self, case: GroupedCase, every: int) -> None:
        assert case.group_size is not None
        self.case = case
        self._every = every
        self._size = case.group_size
        self.disk = SimulatedDisk()
        self.query = self._on(self.disk)
        self.written: dict[int, dict[Identity, Row]] = {}
        self.closed: dict[int, set[Identity]] = {}
        self.open: set[Identity] = set()

    def _on(self, disk: SimulatedDisk) -> Query:
        made = Query(self.case, disk, Incremental(self._every, self._size))
        made.loss = Loss.BOUNDED
        return made

    def run(self, batch: int) -> None:
        self.query.run(batch, [self.case.batches[batch]])
        segment = self.query.logs().output(0).read(batch)
        self.written[batch] = {_name(row): row for row in _rows(segment, FrameKind.FOOTPRINTS)}
        self.closed[batch] = {_name(row) for row in _rows(segment, FrameKind.CLOSED)}
        (bucket,) = self.query.open()
        state = bucket.state()
        assert isinstance(state, JoinState)
        self.open = set(self.case.states(self.case.operator(), state))

    def recovered(self, batch: int, disk: SimulatedDisk) -> tuple[list[list[int]], RecoveryReport]:
        """The numbers of the tuples that wait on each side after a recovery."""
        twin = self._on(disk)
        (bucket,) = twin.open()
        state, report, _ = bucket._keeper.open(batch + 1)
        assert report is not None
        assert isinstance(state.pieces, JoinState)
        operator = self.case.operator()
        found = self.case.states(operator, state.pieces)
        assert state.pieces.open_windows == len(found)
        twin.stop()
        return [
            sorted(n for name, row in found.items() if name[0][1] == side for n in row["numbers"])
            for side in (0, 1)
        ], report

    def findable(self, batch: int, damaged: set[int], *, is_open: bool) -> dict[Identity, Row]:
        """Of each group that is open, or of each that is not known to have closed, the newest
        footprint in a segment that can be read."""
        found: dict[Identity, Row] = {}
        met: set[Identity] = set()
        for each in range(batch, -1, -1):
            if each not in damaged:
                found |= {n: row for n, row in self.written[each].items() if n not in met}
                met |= {*self.written[each], *self.closed[each]}
        return {name: row for name, row in found.items() if name in self.open or not is_open}

    def left(self, groups: Sequence[Row], missed: int) -> list[list[int]]:
        """What a window holds of the tuples of these groups, when so many more are lost: each side
        has its share of these, by what had come to it, and each window of a side, by what it had
        got since its oldest tuple; as many go as are then too many."""
        came = [
            max((row["others"] for row in groups if row["side"] != side), default=0)
            for side in (0, 1)
        ]
        for row in groups:
            came[row["side"]] = max(came[row["side"]], *(n + 1 for n in row["numbers"]))
        sides: list[list[int]] = []
        for side, window in enumerate(self.case.windows_of):
            rings: dict[Any, list[int]] = {}
            for row in (row for row in groups if row["side"] == side):
                for number, held in zip(row["numbers"], row[("left", "right")[side]], strict=True):
                    ring = repr([held[k] for k in self.case.on]) if window.per_key else ""
                    rings.setdefault(ring, []).append(number)
            kept = []
            for numbers in rings.values():
                tuples = sorted(numbers)[-window.count :]
                mine = missed * came[side] // sum(came) * len(tuples) // (came[side] - tuples[0])
                kept += tuples[max(0, len(tuples) + mine - window.count) :]
            sides.append(sorted(kept))
        return sides

    def check(self, batch: int, damaged: set[int]) -> tuple[list[list[int]], Lost]:
        """What is left and counted as lost, with these segments damaged."""
        disk = self.disk.copy()
        for each in damaged:
            flip_in(disk, Stream.OUTPUT, each, random.Random(each).random())
        left, report = self.recovered(batch, disk)
        loaded = [row for rows in report.plan.footprints for row in plain_rows(rows)]
        most = self.findable(batch, damaged, is_open=False)
        assert {_name(row) for row in loaded} >= self.findable(batch, damaged, is_open=True).keys()
        for row in loaded:
            assert row.items() >= most[_name(row)].items()
        assert report.plan.lost is not None
        assert left == self.left(loaded, report.plan.lost.tuples)
        return left, report.plan.lost


def _rows(segment: Segment, kind: FrameKind) -> list[Row]:
    table = segment.table(kind)
    return [] if table is None else plain_rows(contiguous(table))


def _name(row: Row) -> Identity:
    return (row[OPENED], row["side"], row["first"]), None


@pytest.mark.parametrize("part", range(2))
def test_damage_loses_what_its_groups_got_since_they_were_written_before(part: int) -> None:
    lost = fewer = 0
    for seed in seeds(40)[part::2]:
        rng = random.Random(seed)
        case = random_grouped(rng)
        with reported(seed, case):
            run = _Watched(case, rng.choice((1, 2, 3)))
            for batch in range(len(case.batches)):
                run.run(batch)
                whole, missing = run.check(batch, set())
                since = max((each for each in range(batch + 1) if run.written[each]), default=-1)
                later = sum(
                    sum(table.num_rows for table in case.batches[each].tables)
                    for each in range(since + 1, batch + 1)
                )
                assert missing.tuples <= later
                damaged = set(rng.sample(range(batch + 1), rng.choice((1, 1, 2)) % (batch + 1)))
                if not damaged:
                    continue
                left, missing = run.check(batch, damaged)
                if left != whole:
                    assert not missing.is_nothing
                    lost += 1
                fewer += sum(map(len, left)) < sum(map(len, whole))
            run.query.stop()
    assert lost
    assert fewer
