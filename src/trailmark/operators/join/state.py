"""The state of a join: the tuples of both sides that wait for partners, cut into pieces.

How it is cut is not decided here: into what came in one batch (`pieces`), or into groups of a ring
that fill over many (`groups`). Either way a piece is named by the batch, the side and the place of
its first tuple.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from trailmark.kernel.columns import arrow_fixed
from trailmark.kernel.library import KeyPieces, address, kernel, reference
from trailmark.operators.join.arguments import SIDES
from trailmark.operators.join.arrivals import Arrived
from trailmark.operators.join.rules import JoinRules
from trailmark.operators.join.waiting import Waiting
from trailmark.operators.key_slots import KeySlots
from trailmark.operators.met_windows import BatchWindows
from trailmark.operators.protocol import BatchInput, History
from trailmark.operators.row_blocks import Numbers
from trailmark.records import OPENED
from trailmark.state.keys import KeyLayout
from trailmark.state.memory import PAGE, Memory
from trailmark.state.table import OPENED_PLACE, Slots, StateTable, TableLayout
from trailmark.values import dataclass

#: What names a piece beside the batch that it opened in.
SIDE, FIRST = "side", "first"
IDENTITY = pa.schema(
    [pa.field(OPENED, pa.int64()), pa.field(SIDE, pa.int8()), pa.field(FIRST, pa.int64())]
)

Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Opening:
    """What a batch opens: pieces without their place in the state."""

    pieces: npt.NDArray[Any]
    batch: int
    footprint: int


@dataclass(frozen=True, slots=True)
class Parting:
    """The end of a batch, at which tuples of a side leave that have nobody to wait for any more.

    ``arrived`` are the numbers of those that have just come; None in a replay. After the last
    batch, nobody waits any more.
    """

    side: int
    arrived: Numbers | None
    watermark: int | None
    is_last: bool = False


@dataclass(frozen=True, slots=True)
class Departures:
    """The tuples of one side that leave, of those that wait and of those that have just arrived.

    Attributes
    ----------
    numbers
        All that leave, in the order in which they came.
    arrived_leave
        Which of those that have arrived are among them.
    closed
        What names the pieces that none of them is left of; None if there are none.
    changed
        The pieces that stay open and whose footprints do not tell what is left of them.
    """

    numbers: Numbers
    arrived_leave: Mask
    closed: pa.RecordBatch | None
    changed: Slots


@dataclass(frozen=True, slots=True)
class Entering:
    """Tuples of one side that have arrived, their numbers, and which of them stay."""

    side: int
    arrived: Arrived
    numbers: Numbers
    stays: Mask


def identity_rows(opened: Numbers, pieces: npt.NDArray[Any]) -> pa.RecordBatch:
    """What names pieces, as rows."""
    return pa.RecordBatch.from_arrays(
        [
            arrow_fixed(np.ascontiguousarray(opened, dtype=np.int64), pa.int64()),
            arrow_fixed(pieces["side"].astype(np.int8), pa.int8()),
            arrow_fixed(np.ascontiguousarray(pieces["first"]), pa.int64()),
        ],
        schema=IDENTITY,
    )


class JoinState(StateTable, ABC):
    """Pieces, in a table ordered by the age of their footprints, and what waits in them."""

    def __init__(
        self,
        layout: TableLayout,
        keys: KeyLayout,
        schemas: Sequence[pa.Schema],
        memory: Memory,
        history: History,
        *,
        is_new: bool,
        by_number: bool = False,
        labels: np.dtype[Any] | None = None,
    ) -> None:
        """With ``by_number`` the times of tuples are their numbers; ``labels`` are what the cut
        keeps of each tuple."""
        super().__init__(layout, memory, is_new=is_new)
        self.history = history
        self.keys = KeySlots(keys, memory, is_new=is_new)
        self._head = memory.region("join", PAGE)
        self.sides = tuple(
            Waiting(
                memory,
                name,
                side,
                schema,
                self.keys,
                is_new=is_new,
                by_number=by_number,
                labels=labels,
            )
            for side, (name, schema) in enumerate(zip(SIDES, schemas, strict=True))
        )
        if is_new:
            self._numbers[:] = 0

    @property
    def _numbers(self) -> npt.NDArray[np.int64]:
        """How many tuples have come to the bucket, whether some wait in a wrong order, and whether
        some were loaded since a replay let those go that have left."""
        return self._head.view("<i8", 3)

    @property
    def arrived(self) -> int:
        """How many tuples have come to the bucket, as far as the state knows."""
        return int(self._numbers[0])

    @arrived.setter
    def arrived(self, count: int) -> None:
        self._numbers[0] = count

    @property
    def is_loaded(self) -> bool:
        """Whether tuples were loaded that may have left, as far as a replay knows."""
        return bool(self._numbers[2])

    @is_loaded.setter
    def is_loaded(self, is_loaded: bool) -> None:
        self._numbers[2] = is_loaded

    # Tuples

    def add_tuples(
        self,
        side: int,
        rows: pa.RecordBatch,
        times: Numbers,
        places: Numbers,
        has_null: npt.NDArray[np.bool_] | None,
    ) -> Numbers:
        """Adds tuples, at these places of their pieces, that are not in the chains of their keys
        yet; returns their numbers."""
        slots = self.keys.slots_of(rows, has_null, adds=True)
        waiting = self.sides[side]
        numbers = waiting.add(rows, linked=False)
        added = waiting.tuples[waiting.count - len(numbers) :]
        added["time"], added["key"], added["place"] = times, slots, places
        added["is_matched"], added["is_gone"] = 0, 0
        return numbers

    # How it is cut

    @abstractmethod
    def depart(self, rules: JoinRules, parting: Parting) -> Departures:
        """Lets tuples leave."""

    @abstractmethod
    def enter(self, rules: JoinRules, entering: Entering, given: BatchInput) -> tuple[Slots, Slots]:
        """Puts tuples into pieces; returns the pieces that they have opened, and those that were
        open and have changed."""

    @abstractmethod
    def holders(self, side: int, numbers: Numbers) -> Slots:
        """The pieces that hold tuples; those of the batch that is at work are in none yet."""

    @abstractmethod
    def refers_back_to(self) -> int | None:
        """The oldest batch of the input log that a piece refers to; None if none does."""

    @abstractmethod
    def keep_or_refer(self, slots: Slots) -> None:
        """Decides which pieces hold their tuples in the footprints that they are about to get."""

    @abstractmethod
    def _compact(self, side: int) -> None:
        """Keeps the tuples that wait, in the order in which they came."""

    # Pieces

    def read_pieces(self, slots: Slots) -> npt.NDArray[Any]:
        """Copies of pieces."""
        rows = self.read(slots)
        assert rows.states is not None
        return rows.states.copy()

    def opened(self, slots: Slots) -> Numbers:
        """The batches that pieces opened in."""
        return self.read_field(slots, OPENED_PLACE).astype(np.int64)

    def identities_of(self, slots: Slots) -> pa.RecordBatch:
        """What names pieces."""
        return identity_rows(self.opened(slots), self.read_pieces(slots))

    def surplus(self, side: int, arrived: Numbers | None, most: int) -> Numbers:
        """The tuples of a side that have so many newer ones of their key, among the keys of those
        that have arrived; of all keys if these are None."""
        waiting = self.sides[side]
        numbers = np.arange(waiting.count, dtype=np.int64) if arrived is None else arrived
        found = np.empty(waiting.count, dtype=np.int64)
        count = kernel.tm_join_surplus(
            self.keys.structure,
            waiting.address,
            side,
            most,
            address(numbers),
            len(numbers),
            address(found),
        )
        return np.sort(found[:count])

    def open_pieces(self, opening: Opening) -> Slots:
        """Opens pieces whose tuples are in the state."""
        count = len(opening.pieces)
        met = BatchWindows(self, np.zeros(1, dtype=self.layout.state), count + 16)
        batches = np.full(count, opening.batch, dtype=np.int64)
        keys = self.encode_keys(identity_rows(batches, opening.pieces))
        number, need = np.empty(count, dtype=np.int32), np.zeros(1, dtype=np.int32)
        spec = KeyPieces(opening.batch, 0, opening.footprint)
        done = 0
        while done < count:
            done = kernel.tm_find_pieces(
                self.structure,
                reference(keys.structure),
                reference(spec),
                done,
                met.structure,
                address(number),
                address(need),
            )
            if need[0]:
                met.make_room(int(need[0]), "")
        met.states()[:] = opening.pieces
        return met.store()

    def update_pieces(
        self,
        slots: Slots,
        pieces: npt.NDArray[Any],
        is_closed: npt.NDArray[np.bool_] | None = None,
    ) -> None:
        """Writes pieces back, and closes some of them."""
        met = BatchWindows(self, np.zeros(1, dtype=self.layout.state), len(slots) + 16)
        met.meet(np.ascontiguousarray(slots))
        met.states()[:] = pieces
        met.close(np.zeros(len(slots), dtype=np.bool_) if is_closed is None else is_closed)
        met.store()

    # Order and room

    def note_disorder(self) -> None:
        """Tuples were added that came before others that are there."""
        self._numbers[1] = 1

    def settle(self, missed: int = 0) -> None:
        """Brings what was loaded into the order in which it came, and into the chains. If so many
        tuples were lost that came since, those go that would have left by now."""
        is_disordered, self._numbers[1] = bool(self._numbers[1]), 0
        for side, waiting in enumerate(self.sides):
            if is_disordered:
                self._compact(side)
            elif waiting.linked < waiting.count:
                waiting.link()
            waiting.rows.write()

    def tidy(self) -> None:
        """Lets go of tuples that have left, if they are many; what came last is in the memory
        then."""
        for side, waiting in enumerate(self.sides):
            if waiting.is_mostly_gone:
                self._compact(side)
            waiting.rows.write()
