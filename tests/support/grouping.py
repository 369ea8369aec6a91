"""Joins whose windows are rings of groups, and the oracle of the groups: it fills them one tuple at
a time."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

import numpy as np
import pyarrow as pa

from tests.support.compare import assert_same_states, exact
from tests.support.joining import (
    JoinCase,
    JoinOracle,
    Waiting,
    random_join,
    random_windows,
    small_windows,
)
from tests.support.joining_checks import open_state
from tests.support.oracle import Identity, OracleOutcome, Row
from tests.support.plain import plain_rows
from trailmark.operators.join import Join
from trailmark.operators.join.state import JoinState
from trailmark.records import FOOTPRINT, NO_BATCH, OPENED
from trailmark.state.memory import Memory
from trailmark.windows.last_tuples import LastTuples

#: Groups of quiet keys hold no less than one part in so many.
_LEAST_PART = 16


@dataclass(eq=False)
class _Group:
    """A group of a ring, and the tuples that it ever got."""

    side: int
    size: int
    tuples: list[Waiting] = field(default_factory=list)

    @property
    def identity(self) -> Identity:
        first = self.tuples[0]
        return ((first.batch, self.side, first.place), None)


class GroupOracle(JoinOracle):
    """The windows of a join, and the groups that their tuples are in."""

    def __init__(self, case: GroupedCase) -> None:
        super().__init__(case)
        self._grouped = case
        self._groups: list[_Group] = []
        self._newest: dict[tuple[int, Any], _Group] = {}
        self._came = [0, 0]
        self._numbers: dict[tuple[int, int, int], int] = {}

    def process(
        self,
        batch: int,
        rows: Sequence[tuple[int, Row]],
        late_before: int | None,
        watermark: int | None,
    ) -> OracleOutcome:
        outcome = super().process(batch, rows, late_before, watermark)
        places = [0, 0]
        for side, row in rows:
            if all(row[name] is not None for name in self._grouped.on):
                self._numbers[batch, side, places[side]] = self._came[side]
                self._came[side] += 1
            places[side] += 1
        for side, waiting in enumerate(self._waiting):
            self._drop_closed(side)
            self._enter(side, [each for each in waiting if each.batch == batch])
        return outcome

    def _drop_closed(self, side: int) -> None:
        """A group none of whose tuples waits is no more."""
        waiting = self._waiting[side]
        for group in [each for each in self._groups if each.side == side]:
            if not any(each in waiting for each in group.tuples):
                self._groups.remove(group)
                for ring in [ring for ring, each in self._newest.items() if each is group]:
                    del self._newest[ring]

    def _enter(self, side: int, entering: Sequence[Waiting]) -> None:
        window = self._grouped.windows_of[side]
        rings = [self._key(each) if window.per_key else None for each in entering]
        counts = Counter(rings)
        for each, ring in zip(entering, rings, strict=True):
            group = self._newest.get((side, ring))
            if group is None or len(group.tuples) == group.size:
                group = _Group(side, self._grouped.size_of(window, counts[ring]))
                self._newest[side, ring] = group
                self._groups.append(group)
            group.tuples.append(each)

    def open_windows(self) -> dict[Identity, Row]:
        return {group.identity: self._shown(group) for group in self._groups}

    def _shown(self, group: _Group) -> Row:
        waiting = [each for each in group.tuples if each in self._waiting[group.side]]
        has_flags = self._grouped.has_flags[group.side]
        return {
            OPENED: group.tuples[0].batch,
            "tuples": tuple(exact(each.row) for each in waiting),
            "matched": tuple(each.has_matched for each in waiting if has_flags),
            "numbers": tuple(self._numbers[each.batch, group.side, each.place] for each in waiting),
            "filled": len(group.tuples),
            "size": group.size,
        }


@dataclass(frozen=True)
class GroupedCase(JoinCase):
    """A join of windows that are cut into groups."""

    def oracle(self) -> GroupOracle:
        return GroupOracle(self)

    @property
    def windows_of(self) -> tuple[LastTuples, LastTuples]:
        assert self.windows is not None
        return self.windows

    def size_of(self, window: LastTuples, entering: int) -> int:
        """How many tuples a group holds that opens in a batch with so many of its ring."""
        assert self.group_size is not None
        most = min(self.group_size, window.count)
        if not window.per_key:
            return most
        size = 1
        while size < entering:
            size *= 2
        return min(most, max(size, most // _LEAST_PART, 1))

    def states(self, operator: Join, state: JoinState) -> dict[Identity, Row]:
        content = operator.content(state)
        content.validate(full=True)
        found: dict[Identity, Row] = {}
        for place, row in enumerate(plain_rows(content.drop_columns(["left", "right"]))):
            held = content.column(("left", "right")[row["side"]])[place].values
            tuples = plain_rows(pa.RecordBatch.from_struct_array(held))
            assert row["tuples"] == len(tuples)
            found[(row[OPENED], row["side"], row["first"]), None] = {
                OPENED: row[OPENED],
                "tuples": tuple(exact(each) for each in tuples),
                "matched": tuple(row.get("matched") or ()),
                **{name: row[name] for name in ("filled", "size")},
                "numbers": tuple(row["numbers"]),
            }
        return found


def _grouped(case: JoinCase, group_size: int) -> GroupedCase:
    values = {each.name: getattr(case, each.name) for each in fields(case)}
    return GroupedCase(**{**values, "group_size": group_size})


def random_grouped(rng: random.Random) -> GroupedCase:
    """Windows of few tuples and of many, in groups of one tuple and of more than a window has."""
    case = random_join(rng)
    if case.windows is None:
        case = replace(case, within=None, windows=random_windows(rng), late="drop")
        if case.condition is None:
            case = replace(case, condition=rng.choice((None, "in order", "even")))
    return _grouped(case, rng.choice((1, 2, 3, 7, 40)))


def small_groups(batches: int = 4, how: str = "full") -> GroupedCase:
    """The last three tuples of one side and the last one of each key of the other, in groups of
    two."""
    return _grouped(small_windows(batches, how), 2)


class GroupCheckpoint:
    """The newest footprint of every group, taken now and then of those that are dirty."""

    def __init__(self, case: GroupedCase) -> None:
        self._case = case
        self._operator = case.operator()
        self.dirty: set[Identity] = set()
        self._newest: dict[Identity, tuple[int, pa.RecordBatch]] = {}
        self._base = -1

    def follow(self, state: JoinState, changed: np.ndarray[Any, Any]) -> None:
        """Notes what a batch has changed."""
        footprints = self._operator.footprints(state, changed, 0)
        self.dirty |= set(self._case.footprint_states(self._operator, footprints))

    def take(self, state: JoinState, batch: int) -> int:
        """Writes the dirty groups that are still there; returns how many these are."""
        slots = state.list_oldest()
        footprints = self._operator.footprints(state, slots, 0)
        assert self._operator.trouble(footprints, batch) == ""
        identities = list(self._case.footprint_states(self._operator, footprints))
        dirty = [place for place, each in enumerate(identities) if each in self.dirty]
        for place in dirty:
            self._newest[identities[place]] = batch, footprints.slice(place, 1)
        self._newest = {each: self._newest[each] for each in identities}
        self.dirty, self._base = set(), batch
        return len(dirty)

    def rebuild(self, state: JoinState, batch: int, rng: random.Random) -> JoinState:
        """The state of a batch, from the groups of the last checkpoint and the batches since."""
        operator, recovered = self._operator, open_state(self._case)
        loaded = list(self._newest.values())
        rng.shuffle(loaded)
        for found, row in loaded:
            stamp = pa.array([found], pa.int64())
            operator.load(recovered, row.append_column(FOOTPRINT, stamp), "rebuild")
        operator.settle(recovered)
        assert recovered.open_windows == len(loaded)
        for again in range(self._base + 1, batch + 1):
            operator.process(recovered, self._case.given(again))
        wanted = self._case.states(operator, state)
        assert_same_states(self._case.states(operator, recovered), wanted, f"rebuilt at {batch}")
        return recovered


def check_groups(case: GroupedCase, rng: random.Random) -> tuple[int, int]:
    """A state that is rebuilt from its dirty groups is the live one and goes on as that would;
    a group that is not dirty has at most lost tuples. Returns how many groups were written, and how
    many there were to write."""
    operator, oracle = case.operator(), case.oracle()
    state, checkpoint = open_state(case), GroupCheckpoint(case)
    written = there = 0
    for batch in range(len(case.batches)):
        given = replace(case.given(batch), lists_changed=True, footprint=NO_BATCH)
        before = case.states(operator, state)
        outcome = operator.process(state, given)
        case.outcome(oracle, batch, operator.arrange(case.batches[batch]), None, None)
        checkpoint.follow(state, outcome.changed)
        after = case.states(operator, state)
        assert_same_states(after, oracle.open_windows(), f"batch {batch}")
        _check_clean(before, after, checkpoint)
        if rng.random() < 0.4:
            written += checkpoint.take(state, batch)
            there += state.open_windows
        if rng.random() < 0.4:
            state.memory.close()
            state = checkpoint.rebuild(_rerun(case, batch), batch, rng)
    return written, there


def _rerun(case: GroupedCase, batch: int) -> JoinState:
    """The state after a batch, from the first one on."""
    operator, state = case.operator(), open_state(case, Memory)
    for each in range(batch + 1):
        operator.process(state, case.given(each))
    return state


def _check_clean(
    before: dict[Identity, Row], after: dict[Identity, Row], checkpoint: GroupCheckpoint
) -> None:
    for identity in after.keys() - checkpoint.dirty:
        was, now = before[identity], after[identity]
        left = len(now["tuples"])
        assert now["tuples"] == was["tuples"][-left:], f"group {identity} is dirty"
        assert now["matched"] == was["matched"][-left:], f"group {identity} is dirty"
        assert (now["filled"], now["size"]) == (was["filled"], was["size"])
