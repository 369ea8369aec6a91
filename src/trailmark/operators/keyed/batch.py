"""One batch of a keyed operator: its rows, then the timers that are due, then the ends of lives.

A replay does the same for the keys that the state has from before the batch, and keeps no rows: a
key's state follows from its own rows and times alone, whichever other keys are in a call.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import count
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from trailmark.errors import OperatorError
from trailmark.kernel.columns import chosen_rows
from trailmark.kernel.library import KeyPieces, address, kernel, reference
from trailmark.kernel.scratch import scratch
from trailmark.operators.keyed.columns import StateColumn
from trailmark.operators.keyed.declared import Declared
from trailmark.operators.keyed.due import (
    CLOCK_TIMER,
    CLOCK_TTL,
    EVENT_TIMER,
    EVENT_TTL,
    NEVER,
    KeyedTable,
)
from trailmark.operators.keyed.elements import States
from trailmark.operators.keyed.given import KeyedState, Keys
from trailmark.operators.met_windows import BatchWindows
from trailmark.operators.protocol import BatchInput
from trailmark.operators.user_code import call, joined, returned_rows
from trailmark.state.table import Slots
from trailmark.values import dataclass

Numbers = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Code:
    """A user's operator, and what is known of it.

    Attributes
    ----------
    user
        An instance of the user's class.
    columns
        The columns of the state, by name.
    fresh
        The state that a key begins with.
    output
        The columns of its results.
    keys
        The key columns, as pieces that ended are listed.
    """

    user: Any
    declared: Declared
    columns: Mapping[str, StateColumn]
    fresh: States
    output: pa.Schema
    keys: pa.Schema


class KeyedBatch:
    """A batch at work on a table.

    Attributes
    ----------
    opened, changed
        The pieces that the batch has opened or changed, whether they are still open or not.
    """

    def __init__(
        self, code: Code, table: KeyedTable, given: BatchInput, *, is_replay: bool = False
    ) -> None:
        self._code = code
        self._table = table
        self._given = given
        self._is_replay = is_replay
        self._results: list[pa.RecordBatch] = []
        self._closed: list[pa.RecordBatch] = []
        self.opened: list[Slots] = []
        self.changed: list[Slots] = []

    def results(self) -> pa.RecordBatch:
        """All rows that the user's code returned."""
        return joined(self._results, self._code.output)

    def closed(self) -> pa.RecordBatch:
        """The keys whose state has ended."""
        return joined(self._closed, self._code.keys)

    # The rows of the batch

    def take_rows(self, rows: pa.RecordBatch, times: Numbers | None) -> None:
        """Hands rows to `process`; ``times`` are their event times, if they have any."""
        pieces = BatchWindows(self._table, self._code.fresh, rows.num_rows + 16)
        number = self._find(rows, pieces)
        if self._is_replay:
            is_taken = number >= 0
            rows, number = chosen_rows(rows, is_taken), number[is_taken]
            times = None if times is None else times[is_taken]
        if not rows.num_rows:
            return
        self._live_on(pieces.states(), number, times)
        self._call("process", pieces, number, rows)

    def _find(self, rows: pa.RecordBatch, pieces: BatchWindows) -> Numbers:
        """The number of the piece of each row; opens those that are new."""
        keys = self._table.encode_keys(rows)
        number = scratch("piece of each tuple", keys.count, np.int32)
        need = np.zeros(1, dtype=np.int32)
        given = self._given
        spec = KeyPieces(given.batch, self._is_replay, given.footprint)
        done = 0
        while done < keys.count:
            done = kernel.tm_find_pieces(
                self._table.structure,
                reference(keys.structure),
                reference(spec),
                done,
                pieces.structure,
                address(number),
                address(need),
            )
            if need[0]:
                pieces.make_room(int(need[0]), "")
        return number.astype(np.int64)

    def _live_on(self, states: States, number: Numbers, times: Numbers | None) -> None:
        """The lives of the keys that have rows begin anew."""
        lives = self._code.declared.lives_us
        if EVENT_TTL in lives:
            assert times is not None
            last = np.full(len(states), np.iinfo(np.int64).min, dtype=np.int64)
            np.maximum.at(last, number, times)
            before = states[EVENT_TTL]["at"]
            ends = last + lives[EVENT_TTL]
            states[EVENT_TTL]["at"] = np.where(before == NEVER, ends, np.maximum(before, ends))
        # Batches that were logged before the operator asked for the time have none.
        if CLOCK_TTL in lives and self._given.now_us is not None:
            states[CLOCK_TTL]["at"] = self._given.now_us + lives[CLOCK_TTL]

    # What is due

    def take_due(self) -> None:
        """Calls the timers that are due, and ends the lives that are over."""
        watermark, now = self._given.watermark, self._given.now_us
        limits = {EVENT_TIMER: watermark, CLOCK_TIMER: now, EVENT_TTL: watermark, CLOCK_TTL: now}
        for kind in self._code.declared.dues:
            limit = limits[kind]
            if limit is not None:
                self.take_kind(kind, limit)

    def take_kind(self, kind: str, limit: int, most: int | None = None) -> None:
        """All that is due by ``limit``, and what becomes due by it on the way; refused if that has
        not come to its end after ``most`` rounds."""
        for done in count():
            if done == most:
                raise self._endless(kind)
            due, others = self._table.take_due(kind, limit)
            if self._is_replay:
                is_older = self._table.footprints(due) < self._given.batch
                due, others = due[is_older], np.concatenate([others, due[~is_older]])
            self._schedule_again(kind, others)
            if not len(due):
                return
            pieces = self._met(due)
            states = pieces.states()
            times = states[kind]["at"].copy()
            states[kind] = (NEVER, NEVER)
            if kind in self._code.declared.timers:
                self._call(self._code.declared.timers[kind], pieces, None, times)
            else:
                self._finish(pieces, np.ones(len(due), dtype=np.bool_))

    def _endless(self, kind: str) -> OperatorError:
        name = self._code.declared.name
        return OperatorError(
            f"{name} sets {kind.replace('$', 'state.')} again whenever it is called, so a flush of "
            "its timers has no end.",
            where=f"{name}.{self._code.declared.timers[kind]}",
            fix="Leave flush out, or set no timer while state.watermark is NaT, which it is only "
            "at the end of all rows and before the first.",
        )

    def _met(self, slots: Slots) -> BatchWindows:
        pieces = BatchWindows(self._table, self._code.fresh, len(slots) + 16)
        pieces.meet(np.ascontiguousarray(slots))
        return pieces

    def _schedule_again(self, kind: str, slots: Slots) -> None:
        if len(slots):
            pieces = self._met(slots)
            states = pieces.states()
            states[kind]["queued"] = NEVER
            self._table.schedule(slots, states, np.ones(len(slots), dtype=np.bool_))
            pieces.store()

    # The user's code

    def _call(
        self,
        method: str,
        pieces: BatchWindows,
        number: Numbers | None,
        given: pa.RecordBatch | Numbers,
    ) -> None:
        """Calls a method for the pieces that were met, with rows, or with times that are due."""
        code, batch = self._code, self._given.batch
        states, slots = pieces.states(), pieces.slot.copy()
        before = {kind: states[kind]["at"].copy() for kind in code.declared.timers}
        of_rows = np.arange(len(slots)) if number is None else number
        keys = Keys(len(slots), of_rows, lambda: self._key_rows(slots))
        state = KeyedState(
            code.columns,
            self._table,
            states,
            ~pieces.is_prior,
            self._given.watermark,
            self._given.now_us,
        )
        name = f"{code.declared.name}.{method}"
        second = given.view("<M8[us]") if isinstance(given, np.ndarray) else given
        returned = call(getattr(code.user, method), name, batch, keys, second, state)
        rows = returned_rows(returned, code.output, name, batch)
        if rows is not None and rows.num_rows and not self._is_replay:
            self._results.append(rows)
        state.save()
        fired = given if isinstance(given, np.ndarray) else None
        self._check_timers(name, states, before, fired)
        self._finish(pieces, state.removed)

    def _check_timers(
        self,
        name: str,
        states: States,
        before: Mapping[str, Numbers],
        fired: Numbers | None,
    ) -> None:
        """Refuses times that have passed: those of a timer that has fired are later than it."""
        given = self._given
        passed = {
            EVENT_TIMER: given.late_before,
            CLOCK_TIMER: None if given.now_us is None else given.now_us - 1,
        }
        for kind, old in before.items():
            at = states[kind]["at"]
            limit = (
                fired
                if fired is not None and name.endswith(self._code.declared.timers[kind])
                else passed[kind]
            )
            if limit is None:
                continue
            is_past = (at != old) & (at <= limit)
            if is_past.any():
                self._refuse_timer(name, kind, int(at[is_past][0]))

    def _refuse_timer(self, name: str, kind: str, at: int) -> None:
        moment = np.datetime64(at, "us")
        raise OperatorError(
            f"{name} set {kind.replace('$', 'state.')} to {moment}, which has passed.",
            where=f"batch {self._given.batch}, watermark {_shown(self._given.late_before)}",
            fix="Set a later time, or do at once what the timer would have done.",
        )

    def _finish(self, pieces: BatchWindows, removed: Mask) -> None:
        """Writes states back, and ends those that were removed."""
        table, states, slots = self._table, pieces.states(), pieces.slot
        if removed.any():
            if self._is_replay:
                raise self._not_the_same()
            self._closed.append(self._key_rows(slots[removed]))
            ended = states[removed]
            for column in self._code.columns.values():
                column.free(table, ended)
        table.schedule(slots, states, ~removed)
        pieces.close(removed)
        self.changed.append(slots[~removed])
        self.opened.append(pieces.store())

    def _not_the_same(self) -> OperatorError:
        return OperatorError(
            f"{self._code.declared.name} removes a key in a replay that it kept when the batch was "
            "new, so the same rows do not lead to the same state.",
            where=f"batch {self._given.batch}",
            fix="The state of a key must follow from its own rows and times alone: no random "
            "numbers, no clock but state.now, no other keys, nothing kept in attributes. "
            "tm.testing.run shows where it does not.",
        )

    def _key_rows(self, slots: Slots) -> pa.RecordBatch:
        slots = np.ascontiguousarray(slots)
        rows = self._table.read(slots, with_states=False)
        return pa.RecordBatch.from_arrays(
            self._table.read_keys(slots, rows), schema=self._code.keys
        )


def _shown(microseconds: int | None) -> str:
    return "none" if microseconds is None else str(np.datetime64(microseconds, "us"))
