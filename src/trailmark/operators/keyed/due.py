"""Times at which something is to be done for a key: timers, and the end of its life.

A key has at most one time of each kind. Which keys are due is found without looking at the others:
a queue holds a time for every key that has one, the earliest first. What is in the queue may be out
of date: it is compared with the state of the key when its time has come.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from trailmark.kernel.library import address, kernel
from trailmark.state.memory import PAGE, Memory
from trailmark.state.table import Slots, StateTable, TableLayout

#: Kinds of times, as footprints name them.
EVENT_TIMER, CLOCK_TIMER = "$event_timer", "$clock_timer"
EVENT_TTL, CLOCK_TTL = "$event_ttl", "$clock_ttl"

#: What a state holds of each: the time, and the earliest entry that is in the queue for it.
DUE = np.dtype([("at", "<i8"), ("queued", "<i8")], align=True)
#: A time that does not come.
NEVER = (1 << 63) - 1

Times = npt.NDArray[np.int64]
_ENTRY = np.dtype([("time", "<i8"), ("slot", "<i8")])
_FIRST = 16
#: Entries that are taken out with one call.
_AT_ONCE = 4096


class DueQueue:
    """Times and slots in a region of their own."""

    def __init__(self, memory: Memory, name: str, *, is_new: bool) -> None:
        self._region = memory.region(name.replace("$", "due_"), PAGE)
        if is_new:
            self._set_count(0)

    @property
    def count(self) -> int:
        return int(self._region.view("<i8", 1)[0])

    def _set_count(self, count: int) -> None:
        self._region.view("<i8", 1)[0] = count

    def entries(self) -> npt.NDArray[Any]:
        """All of them, in no certain order."""
        return self._region.view(_ENTRY, self.count, _FIRST)

    def push(self, times: Times, slots: Slots) -> None:
        """Adds times of slots."""
        if not len(times):
            return
        need = _FIRST + (self.count + len(times)) * _ENTRY.itemsize
        if need > self._region.size:
            self._region.grow(need + need // 2)
        times, slots = np.ascontiguousarray(times), np.ascontiguousarray(slots)
        kernel.tm_due_push(
            self._region.address + _FIRST,
            self._region.address,
            address(times),
            address(slots),
            len(times),
        )

    def pop(self, limit: int) -> tuple[Times, Slots]:
        """Takes out all that are due by then, the earliest first."""
        parts: list[tuple[Times, Slots]] = []
        taken = _AT_ONCE
        while taken == _AT_ONCE:
            times, slots = np.empty(_AT_ONCE, dtype=np.int64), np.empty(_AT_ONCE, dtype=np.int64)
            taken = kernel.tm_due_pop(
                self._region.address + _FIRST,
                self._region.address,
                limit,
                _AT_ONCE,
                address(times),
                address(slots),
            )
            parts.append((times[:taken], slots[:taken]))
        return np.concatenate([each[0] for each in parts]), np.concatenate([p[1] for p in parts])

    @property
    def earliest(self) -> int | None:
        """No time of any key is before it; None if no key has one."""
        return int(self.entries()["time"][0]) if self.count else None

    def keep(self, is_kept: npt.NDArray[np.bool_]) -> None:
        """Lets go of the other entries."""
        kept = self.entries()[is_kept]
        self._set_count(len(kept))
        self.entries()[:] = kept[np.argsort(kept["time"])]


class KeyedTable(StateTable):
    """The state of a keyed operator: a table, and a queue for every kind of time."""

    def __init__(
        self, layout: TableLayout, kinds: Sequence[str], memory: Memory, *, is_new: bool = True
    ) -> None:
        super().__init__(layout, memory, is_new=is_new)
        self.queues = {kind: DueQueue(memory, kind, is_new=is_new) for kind in kinds}

    def schedule(
        self, slots: Slots, states: npt.NDArray[Any], is_open: npt.NDArray[np.bool_]
    ) -> None:
        """Makes sure that the times of these states will be noticed, where they stay open. The
        states are written back by the caller."""
        for kind, queue in self.queues.items():
            times = states[kind]
            is_sooner = (times["at"] < times["queued"]) & is_open
            queue.push(times["at"][is_sooner], slots[is_sooner])
            times["queued"][is_sooner] = times["at"][is_sooner]
            if queue.count > 2 * self.open_windows + 1024:
                self._tidy(kind, queue, slots, states)

    def find_due(self, kind: str, limit: int) -> Slots:
        """The keys with a time up to ``limit``; changes nothing."""
        entries = self.queues[kind].entries()
        slots = np.unique(entries["slot"][entries["time"] <= limit])
        return slots[self._times(kind, slots)["at"] <= limit]

    def take_due(self, kind: str, limit: int) -> tuple[Slots, Slots]:
        """Takes out of the queue what is due up to ``limit``. Returns the keys that have such a
        time, the earliest first, and those whose time is another by now. None of them is in the
        queue any more: all have to be scheduled again."""
        times, slots = self.queues[kind].pop(limit)
        is_current = self._times(kind, slots)["queued"] == times
        slots = np.unique(slots[is_current])
        found = self._times(kind, slots)["at"]
        is_due = found <= limit
        due = slots[is_due]
        return due[np.argsort(found[is_due], kind="stable")], slots[~is_due]

    def _times(self, kind: str, slots: Slots) -> npt.NDArray[Any]:
        """The times of slots; never where nothing is open."""
        rows = self.read(slots)
        assert rows.states is not None
        times = rows.states[kind].copy()
        times[~self.are_open(slots)] = (NEVER, NEVER)
        return times

    def _tidy(self, kind: str, queue: DueQueue, slots: Slots, states: npt.NDArray[Any]) -> None:
        """Lets go of entries that no key has any more. ``states`` are those of ``slots``, newer
        than the table's."""
        entries = queue.entries()
        queued = self._times(kind, np.ascontiguousarray(entries["slot"]))["queued"]
        order = np.argsort(slots)
        place = np.searchsorted(slots[order], entries["slot"])
        place = np.minimum(place, len(slots) - 1)
        is_newer = slots[order][place] == entries["slot"]
        queued[is_newer] = states[kind]["queued"][order][place][is_newer]
        queue.keep(queued == entries["time"])
