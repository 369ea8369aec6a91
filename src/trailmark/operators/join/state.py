"""The state of a join: the tuples of both sides that wait for partners, in pieces.

A piece is what waits of up to so many consecutive tuples of one side of one batch. It is named by
the batch, the side and the place of the first of them, opens with its batch, and closes when the
last of its tuples has left. It *refers* to the batch in the input log, and its footprints hold
none of its tuples, unless the log is kept for next to nothing else: then they hold all that wait,
and the log can go. That is decided when a footprint is about to be written, so that what the state
refers to is what its newest footprints do.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from trailmark.kernel.columns import arrow_fixed
from trailmark.kernel.library import KeyPieces, address, kernel, reference
from trailmark.operators.join.arguments import SIDES
from trailmark.operators.join.blocks import Numbers
from trailmark.operators.join.waiting import Waiting
from trailmark.operators.met_windows import BatchWindows
from trailmark.operators.protocol import History
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

#: What is known of a piece: the least and the greatest time of its tuples that wait, and how many
#: these are; where all of them lie, and how many they are; how many tuples came to the bucket
#: before its batch; and whether its footprints hold its tuples.
PIECE = np.dtype(
    [
        *[(name, "<i8") for name in ("side", "first", "since", "until", "tuples")],
        *[(name, "<i8") for name in ("at", "held", "position", "is_kept")],
    ]
)
PIECES = TableLayout(KeyLayout(list(IDENTITY)), PIECE)
#: What is known of a key: its newest tuple of each side.
CHAINS = np.dtype([("left", "<u4"), ("right", "<u4")])
#: A piece's tuples are kept where, since its batch, at most one tuple in so many still waits.
_WORTH = 8


@dataclass(frozen=True, slots=True)
class Opening:
    """What a batch opens: pieces without their place in the state."""

    pieces: npt.NDArray[Any]
    batch: int
    footprint: int


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


class JoinState(StateTable):
    """Pieces, in a table ordered by the age of their footprints, and what waits in them."""

    def __init__(
        self,
        keys: KeyLayout,
        schemas: Sequence[pa.Schema],
        memory: Memory,
        history: History,
        *,
        is_new: bool,
    ) -> None:
        super().__init__(PIECES, memory, is_new=is_new)
        self.history = history
        layout = TableLayout(keys, CHAINS)
        self.keys = StateTable(layout, memory, is_new=is_new, name="keys-")
        self._head = memory.region("join", PAGE)
        self.sides = tuple(
            Waiting(memory, name, side, schema, self.keys, is_new=is_new)
            for side, (name, schema) in enumerate(zip(SIDES, schemas, strict=True))
        )
        if is_new:
            self._numbers[:] = 0

    @property
    def _numbers(self) -> npt.NDArray[np.int64]:
        """How many tuples have come to the bucket, and whether some wait in a wrong order."""
        return self._head.view("<i8", 2)

    @property
    def arrived(self) -> int:
        """How many tuples have come to the bucket, as far as the state knows."""
        return int(self._numbers[0])

    @arrived.setter
    def arrived(self, count: int) -> None:
        self._numbers[0] = count

    # Keys

    def key_slots(
        self, rows: pa.RecordBatch, has_null: npt.NDArray[np.bool_] | None, *, adds: bool
    ) -> Numbers:
        """Where the keys of rows are in the table of keys; 0 for those with nulls, and without
        ``adds`` for those that nobody has."""
        encoded = self.keys.encode_keys(rows)
        slots = np.empty(encoded.count, dtype=np.int64)
        need = np.zeros(1, dtype=np.int32)
        done = 0
        while done < encoded.count:
            done = kernel.tm_join_keys(
                self.keys.structure,
                reference(encoded.structure),
                None if has_null is None else address(has_null),
                int(adds),
                done,
                address(slots),
                address(need),
            )
            if need[0]:
                self.keys.make_room(int(need[0]))
        return slots

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
        slots = self.key_slots(rows, has_null, adds=True)
        waiting = self.sides[side]
        numbers = waiting.add(rows, linked=False)
        added = waiting.tuples[waiting.count - len(numbers) :]
        added["time"], added["key"], added["place"] = times, slots, places
        added["is_matched"], added["is_gone"] = 0, 0
        return numbers

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

    def in_order(self, side: int, limit: int | None = None) -> tuple[Slots, npt.NDArray[Any]]:
        """The pieces of a side as their tuples came; only those with times up to ``limit``, if
        there is one."""
        slots = self.list_oldest()
        pieces = self.read_pieces(slots)
        is_mine = pieces["side"] == side
        if limit is not None:
            is_mine &= pieces["since"] <= limit
        slots, pieces = slots[is_mine], pieces[is_mine]
        order = np.lexsort((pieces["first"], self.opened(slots)))
        return slots[order], pieces[order]

    def open_pieces(self, opening: Opening) -> Slots:
        """Opens pieces whose tuples are in the state."""
        count = len(opening.pieces)
        met = BatchWindows(self, np.zeros(1, dtype=PIECE), count + 16)
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
        met = BatchWindows(self, np.zeros(1, dtype=PIECE), len(slots) + 16)
        met.meet(np.ascontiguousarray(slots))
        met.states()[:] = pieces
        met.close(np.zeros(len(slots), dtype=np.bool_) if is_closed is None else is_closed)
        met.store()

    def waiting_in(self, pieces: npt.NDArray[Any]) -> Iterator[Numbers]:
        """The numbers of the tuples that wait, piece by piece."""
        for piece in pieces:
            first, held = int(piece["at"]), int(piece["held"])
            is_gone = self.sides[piece["side"]].tuples["is_gone"][first : first + held]
            yield first + np.flatnonzero(is_gone == 0)

    # Order and room

    def note_disorder(self) -> None:
        """Tuples were added that came before others that are there."""
        self._numbers[1] = 1

    def settle(self) -> None:
        """Brings what was loaded into the order in which it came, and into the chains."""
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

    def _compact(self, side: int) -> None:
        """Keeps the tuples that wait, in the order in which they came."""
        slots, pieces = self.in_order(side)
        numbers = list(self.waiting_in(pieces))
        self.sides[side].keep(np.concatenate([*numbers, np.empty(0, dtype=np.int64)]))
        pieces["held"] = pieces["tuples"]
        pieces["at"] = np.cumsum(pieces["tuples"]) - pieces["tuples"]
        self.update_pieces(slots, pieces)

    # Footprints that are about to be written

    def take_oldest(self, before: int, batch: int, most: int) -> Slots:
        slots = super().take_oldest(before, batch, most)
        self.keep_or_refer(slots)
        return slots

    def renew(self, slots: Slots, batch: int) -> None:
        super().renew(slots, batch)
        self.keep_or_refer(slots)

    def keep_or_refer(self, slots: Slots) -> None:
        """Decides which pieces refer to the input log no longer: those whose batch would be kept,
        with all that came since, for few tuples that wait."""
        if not len(slots):
            return
        everything = self.list_oldest()
        opened, waits = self.opened(everything), self.read_pieces(everything)["tuples"]
        order = np.argsort(opened)
        since_then = np.cumsum(waits[order][::-1])[::-1]
        pieces = self.read_pieces(slots)
        waiting = since_then[np.searchsorted(opened[order], self.opened(slots))]
        came = self.arrived - pieces["position"]
        pieces["is_kept"] |= waiting * _WORTH < came
        self.update_pieces(slots, pieces)

    def refers_back_to(self) -> int | None:
        """The oldest batch that a piece refers to; None if none does."""
        slots = self.list_oldest()
        referring = self.opened(slots)[self.read_pieces(slots)["is_kept"] == 0]
        return int(referring.min()) if len(referring) else None
