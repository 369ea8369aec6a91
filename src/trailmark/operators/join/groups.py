"""A join's state cut into groups: each window is a ring of them, and tuples fill one after another.

A window for all keys is one ring, and so is each window of one key. A tuple that enters goes into
the newest group of its ring until that is full; the next one opens another. Groups are named by
their first tuple: its batch, side and place. A group closes when the last of its tuples has left,
so a ring never has more than window / group + 1 of them.

Its footprint holds its tuples with their numbers, as they came to the side. A group that has only
lost tuples needs no other footprint: after a recovery the groups are put in order by these numbers,
and what is too much for a window is dropped.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from trailmark.operators.join.arguments import SIDES
from trailmark.operators.join.rules import JoinRules, Windows
from trailmark.operators.join.state import (
    IDENTITY,
    Departures,
    Entering,
    JoinState,
    Opening,
    Parting,
)
from trailmark.operators.protocol import BatchInput, History
from trailmark.operators.row_blocks import Numbers
from trailmark.state.keys import KeyLayout
from trailmark.state.memory import PAGE, Memory
from trailmark.state.table import Slots, TableLayout

#: What is known of a group: how many of its tuples wait, how many it ever got and will get, and
#: which ring it is of.
GROUP = np.dtype([(name, "<i8") for name in ("side", "first", "tuples", "filled", "size", "ring")])
GROUPS = TableLayout(KeyLayout(list(IDENTITY)), GROUP)
#: What is known of a tuple: how many came to its side before it, and the group that it is in.
LABEL = np.dtype([("number", "<i8"), ("group", "<i8")])

#: Groups of quiet keys are smaller, down to one part in so many.
_LEAST_PART = 16
_NONE: Numbers = np.empty(0, dtype=np.int64)


class GroupedState(JoinState):
    """Both sides of a join in rings of groups."""

    def __init__(
        self,
        windows: Windows,
        keys: KeyLayout,
        schemas: Sequence[pa.Schema],
        memory: Memory,
        history: History,
        *,
        is_new: bool,
    ) -> None:
        super().__init__(
            GROUPS, keys, schemas, memory, history, is_new=is_new, by_number=True, labels=LABEL
        )
        self._windows = windows
        self._rings = [_Rings(memory, name, is_new=is_new) for name in SIDES]

    def enter(self, rules: JoinRules, entering: Entering, given: BatchInput) -> tuple[Slots, Slots]:
        side, numbers = entering.side, entering.numbers
        labels = self.sides[side].labels
        labels["number"][numbers] = self._rings[side].take_numbers(len(numbers))
        numbers = numbers[entering.stays]
        if not len(numbers):
            return _NONE, _NONE
        runs = _Runs.of(self.ring_of(side, numbers))
        filling = self._rings[side].filling(runs.ring)
        before = self._groups(filling)
        room = before["size"] - before["filled"]
        # Tuples that are beyond the room that there is open groups.
        beyond = runs.rank - room[runs.run]
        size = self._sizes(rules, side, runs.counts)[runs.run]
        is_first = (beyond >= 0) & (beyond % size == 0)
        of_new = np.cumsum(is_first)[beyond >= 0] - 1
        made = np.zeros(int(is_first.sum()), dtype=GROUP)
        made["side"] = side
        made["first"] = entering.arrived.places[entering.stays][runs.order[is_first]]
        made["tuples"] = made["filled"] = np.bincount(of_new, minlength=len(made))
        made["size"] = size[is_first]
        made["ring"] = runs.ring[runs.run[is_first]]
        opened = self._open_in_order(made, given)
        group = filling[runs.run]
        group[beyond >= 0] = opened[of_new]
        labels["group"][numbers[runs.order]] = group
        grown = self._grow(filling, before, np.minimum(runs.counts, room))
        self._fill_next(side, runs.ring, group[runs.starts + runs.counts - 1])
        return opened, grown

    def _sizes(self, rules: JoinRules, side: int, counts: Numbers) -> Numbers:
        """How many tuples the groups will hold that rings open which get so many in this batch. A
        group is written whole when one tuple comes, so those of quiet keys are small: enough for
        about a batch."""
        assert rules.group_size is not None
        window = self._windows[side]
        most = min(rules.group_size, window.count)
        if not window.per_key:
            return np.full(len(counts), most)
        powers = np.exp2(np.ceil(np.log2(counts))).astype(np.int64)
        sizes: Numbers = np.clip(powers, max(1, most // _LEAST_PART), most)
        return sizes

    def _open_in_order(self, made: npt.NDArray[Any], given: BatchInput) -> Slots:
        """Opens groups as their first tuples came: how rings are numbered depends on the past."""
        order = np.argsort(made["first"])
        opened = np.empty(len(made), dtype=np.int64)
        opened[order] = self.open_pieces(Opening(made[order], given.batch, given.footprint))
        return opened

    def _fill_next(self, side: int, rings: Numbers, newest: Slots) -> None:
        """The newest groups of rings are filled next, unless they are full."""
        groups = self._groups(newest)
        is_full = groups["filled"] == groups["size"]
        self._rings[side].fill(rings, np.where(is_full, 0, newest))

    def _grow(self, slots: Slots, groups: npt.NDArray[Any], more: Numbers) -> Slots:
        """Puts so many tuples more into groups; returns those that have got any."""
        grows = more > 0
        slots, groups = slots[grows], groups[grows]
        if len(slots):
            groups["tuples"] += more[grows]
            groups["filled"] += more[grows]
            self.update_pieces(slots, groups)
        return slots

    def _groups(self, slots: Slots) -> npt.NDArray[Any]:
        """Copies of groups; all zero where there is none."""
        found = np.zeros(len(slots), dtype=GROUP)
        found[slots > 0] = self.read_pieces(slots[slots > 0])
        return found

    def ring_of(self, side: int, numbers: Numbers) -> Numbers:
        """The rings that tuples are of: the numbers of their keys, or the only one."""
        if not self._windows[side].per_key:
            return np.zeros(len(numbers), dtype=np.int64)
        return self.sides[side].tuples["key"][numbers].astype(np.int64)

    # Tuples leave

    def depart(self, rules: JoinRules, parting: Parting) -> Departures:
        side, arrived = parting.side, parting.arrived
        assert arrived is not None, "groups are never brought up to date one by one"
        waiting = self.sides[side]
        leaving = self._waiting(side) if parting.is_last else self._surplus(side, arrived)
        first = waiting.count - len(arrived)
        before = leaving[: int(np.searchsorted(leaving, first))]
        arrived_leave = np.zeros(len(arrived), dtype=np.bool_)
        arrived_leave[leaving[len(before) :] - first] = True
        closed = self._take_out(side, before)
        waiting.let_go(leaving)
        return Departures(leaving, arrived_leave, closed, _NONE)

    def _waiting(self, side: int) -> Numbers:
        """The tuples that wait, in their order."""
        return np.flatnonzero(self.sides[side].tuples["is_gone"] == 0)

    def _surplus(self, side: int, arrived: Numbers | None) -> Numbers:
        """The tuples that are too many for a window, in their order. Those that have arrived are
        None if it may be any of them."""
        window, waiting = self._windows[side], self.sides[side]
        if window.per_key and window.count:
            return self.surplus(side, arrived, window.count)
        if window.per_key:
            return self._waiting(side)
        # In a window of all keys those that have left are the oldest: nobody has to be looked at.
        return np.arange(waiting.gone, max(waiting.gone, waiting.count - window.count))

    def _take_out(self, side: int, numbers: Numbers) -> pa.RecordBatch | None:
        """Takes tuples out of their groups; returns what names those that close."""
        slots, counts = np.unique(self.sides[side].labels["group"][numbers], return_counts=True)
        if not len(slots):
            return None
        groups = self.read_pieces(slots)
        groups["tuples"] -= counts
        is_closed = groups["tuples"] == 0
        closed = self.identities_of(slots[is_closed]) if is_closed.any() else None
        self._rings[side].forget(groups["ring"][is_closed], slots[is_closed])
        self.update_pieces(slots, groups, is_closed)
        return closed

    def holders(self, side: int, numbers: Numbers) -> Slots:
        labels = self.sides[side].labels["group"][numbers]
        return np.unique(labels[labels > 0])

    def held_by(self, side: int, slots: Slots) -> tuple[Numbers, Numbers]:
        """The tuples that wait in groups of a side, group by group, and how many each has."""
        labels, waiting = self.sides[side].labels["group"], self.sides[side]
        place_of = np.full(1 + max(labels.max(initial=0), slots.max(initial=0)), -1)
        place_of[slots] = np.arange(len(slots))
        places = place_of[labels]
        numbers = np.flatnonzero((places >= 0) & (waiting.tuples["is_gone"] == 0))
        order = np.argsort(places[numbers], kind="stable")
        return numbers[order], np.bincount(places[numbers], minlength=len(slots))

    # Order and room

    def settle(self, missed: int = 0) -> None:
        is_loaded, self.is_loaded = self.is_loaded, False
        super().settle()
        if is_loaded:
            for side in range(len(SIDES)):
                self._drop(side, self._surplus(side, None))
                self._find_rings(side)
        if missed:
            self._age(missed)

    def _drop(self, side: int, numbers: Numbers) -> None:
        """Tuples leave that are not missed by anybody."""
        self._take_out(side, numbers)
        self.sides[side].let_go(numbers)

    def _find_rings(self, side: int) -> None:
        """Which groups are filled next, and which number is."""
        slots = self.list_oldest()
        groups = self.read_pieces(slots)
        # In their order: where some were lost, several of a ring may not be full.
        order = np.lexsort((groups["first"], self.opened(slots)))
        slots, groups = slots[order], groups[order]
        is_filling = (groups["side"] == side) & (groups["filled"] < groups["size"])
        self._rings[side].fill(groups["ring"][is_filling], slots[is_filling])
        newest = int(self.sides[side].labels["number"].max(initial=-1))
        self._rings[side].came = max(self._rings[side].came, newest + 1)

    def came(self, side: int) -> int:
        """How many tuples came to a side, as far as is known."""
        return self._rings[side].came

    def note_came(self, side: int, count: int) -> None:
        """So many tuples had come to a side when a footprint was written."""
        self._rings[side].came = max(self._rings[side].came, count)

    def _age(self, missed: int) -> None:
        """As many tuples leave a window as would be too many with those that are lost: of these,
        each side has its share, and of a side each window, by what had come before."""
        came = [rings.came for rings in self._rings]
        for side, rings in enumerate(self._rings):
            mine = missed * came[side] // max(1, sum(came))
            waiting = self.sides[side]
            numbers = self._waiting(side)
            runs = _Runs.of(self.ring_of(side, numbers))
            numbers = numbers[runs.order]
            oldest = waiting.labels["number"][numbers[runs.starts]]
            of_ring = mine * runs.counts // (came[side] - oldest)
            too_many = np.maximum(0, runs.counts + of_ring - self._windows[side].count)
            self._drop(side, np.sort(numbers[runs.rank < too_many[runs.run]]))
            rings.came += mine

    def _compact(self, side: int) -> None:
        waiting, numbers = self.sides[side], self._waiting(side)
        # They are in order already, unless they were loaded.
        order = np.argsort(waiting.labels["number"][numbers], kind="stable")
        waiting.keep(numbers[order])

    # They refer to nothing

    def refers_back_to(self) -> None:
        """Their footprints hold what they are made of."""

    def keep_or_refer(self, slots: Slots) -> None:
        """There is nothing to decide."""


class _Runs:
    """Tuples put together by their rings, each ring's in the order in which they came.

    Attributes
    ----------
    order
        Where the tuples were before.
    ring, starts, counts
        The rings that there are, where the tuples of each begin and how many they are.
    run, rank
        Of each tuple, which of the rings it is of and how many of these come before it.
    """

    def __init__(self, order: Numbers, ring: Numbers, starts: Numbers, counts: Numbers) -> None:
        self.order, self.ring, self.starts, self.counts = order, ring, starts, counts
        self.run = np.repeat(np.arange(len(starts)), counts)
        self.rank = np.arange(len(order)) - starts[self.run]

    @classmethod
    def of(cls, rings: Numbers) -> _Runs:
        order = np.argsort(rings, kind="stable")
        starts = np.flatnonzero(np.diff(rings[order], prepend=-1))
        return cls(order, rings[order][starts], starts, np.diff(starts, append=len(order)))


class _Rings:
    """The rings of one side: the group that is filled in each, by the number of the ring."""

    def __init__(self, memory: Memory, name: str, *, is_new: bool) -> None:
        self._head = memory.region(f"{name}-came", PAGE)
        self._region = memory.region(f"{name}-rings", PAGE)
        if is_new:
            self._head.bytes[:] = 0
            self._region.bytes[:] = 0

    @property
    def came(self) -> int:
        """How many tuples came to the side."""
        return int(self._head.view("<i8", 1)[0])

    @came.setter
    def came(self, count: int) -> None:
        self._head.view("<i8", 1)[0] = count

    def take_numbers(self, count: int) -> Numbers:
        """Numbers for so many tuples that have come."""
        first, self.came = self.came, self.came + count
        return np.arange(first, first + count, dtype=np.int64)

    @property
    def _filling(self) -> npt.NDArray[np.int64]:
        return self._region.view("<i8", self._region.size // 8)

    def _make_room(self, rings: Numbers) -> None:
        most, before = 8 * (int(rings.max(initial=0)) + 1), self._region.size
        if most > before:
            self._region.grow(most + most // 2 + 8)
            self._region.bytes[before:] = 0

    def filling(self, rings: Numbers) -> Slots:
        """The groups that are filled now; zero where the next tuple opens one."""
        self._make_room(rings)
        found: Slots = self._filling[rings]
        return found

    def fill(self, rings: Numbers, slots: Slots) -> None:
        """From now on these are filled."""
        self._make_room(rings)
        self._filling[rings] = slots

    def forget(self, rings: Numbers, slots: Slots) -> None:
        """These have closed."""
        is_filled = self.filling(rings) == slots
        self._filling[rings[is_filled]] = 0
