"""The table of open windows: found by key, ordered by the age of their footprints.

A slot holds a header, the key, and the state; see ``kernel.h``. Everything here costs in proportion
to the rows it is given, never to the number of open windows, except growing the hash index, which
doubles.
"""

from __future__ import annotations

import secrets
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from trailmark.errors import DamagedSegment, StorageError
from trailmark.kernel.columns import numbers
from trailmark.kernel.library import (
    BROKEN,
    NEED_HEAP,
    NEED_INDEX,
    NEED_SLOTS,
    NEED_STARTS,
    SLOT_HEADER,
    Header,
    Table,
    address,
    kernel,
    reference,
)
from trailmark.kernel.scratch import scratch
from trailmark.records import NO_BATCH
from trailmark.state.keys import EncodedKeys, KeyLayout
from trailmark.state.memory import PAGE, Memory
from trailmark.values import dataclass

Slots = npt.NDArray[np.int64]

#: What the 32-bit fields of a slot can hold.
MOST_WINDOWS = (1 << 32) - 2
LAST_BATCH = (1 << 31) - 1

_FIRST_SLOTS = 512
_FIRST_INDEX = 1024
_SMALL = 1 << 16
_FIRST_HEAP = 1 << 16
_FIRST_STARTS = 64
_START = np.dtype([("start", "<i8"), ("head", "<i8")])


@dataclass(frozen=True)
class TableLayout:
    """What a slot holds.

    ``has_start``: windows of a key differ by a start. ``by_start``: they are looked up by it (time
    windows); otherwise the newest of a key is looked up and leads to the others (count windows).
    """

    keys: KeyLayout
    state: np.dtype[Any]
    has_start: bool = False
    by_start: bool = False

    @property
    def key_offset(self) -> int:
        return SLOT_HEADER.itemsize

    @property
    def state_offset(self) -> int:
        tail = 8 * self.has_start + 16 * self.keys.has_text
        return self.key_offset + self.keys.record_bytes + tail

    @property
    def stride(self) -> int:
        return (self.state_offset + self.state.itemsize + 7) // 8 * 8


#: Whole numbers of a slot: where each begins, and how wide it is.
Places = npt.NDArray[Any]
PLACE = np.dtype([("at", "<i4"), ("width", "<i4")])
#: What they become: the type of each number of bytes.
_NARROW = {kind.bit_width // 8: kind for kind in (pa.int8(), pa.int16(), pa.int32(), pa.int64())}


def _header_place(name: str) -> tuple[int, int]:
    assert SLOT_HEADER.fields is not None
    dtype, at = SLOT_HEADER.fields[name][:2]
    return at, dtype.itemsize


OPENED_PLACE = np.array([_header_place("opened")], dtype=PLACE)
FILL_PLACE = np.array([_header_place("fill")], dtype=PLACE)
FOOTPRINT_PLACE = np.array([_header_place("footprint")], dtype=PLACE)


@dataclass(frozen=True, slots=True)
class SlotRows:
    """Copies of slots: their keys, starts and states.

    Keys and states are valid until the next slots are read.
    """

    keys: npt.NDArray[np.uint8]
    starts: npt.NDArray[np.int64] | None
    states: npt.NDArray[Any] | None


def _step(size: int) -> int:
    """How much to grow by: double while small, then by an eighth, so that little stays unused."""
    return max(_FIRST_SLOTS, size if size < _SMALL else size // 8)


class StateTable:
    """Open windows of one bucket, in the given memory; ``name`` sets a table apart from others
    there."""

    def __init__(
        self, layout: TableLayout, memory: Memory, *, is_new: bool = True, name: str = ""
    ) -> None:
        self.layout = layout
        self.memory = memory
        self._header_region = memory.region(f"{name}header", PAGE)
        self.header = Header.from_address(self._header_region.address)
        if is_new:
            self._initialise()
        h = self.header
        self._slots = memory.region(f"{name}slots", h.slot_capacity * layout.stride)
        self._index = memory.region(f"{name}index", (h.index_mask + 1) * 8)
        self._heap = memory.region(f"{name}heap", max(h.heap_capacity, PAGE))
        self._starts = memory.region(f"{name}starts", max((h.starts_mask + 1) * 16, PAGE))
        self._table = Table()
        self._point()

    def _initialise(self) -> None:
        h, layout = self.header, self.layout
        h.seed = secrets.randbits(64)
        h.stride = layout.stride
        h.key_offset = layout.key_offset
        h.key_bytes = layout.keys.record_bytes
        h.state_offset = layout.state_offset
        h.state_bytes = layout.state.itemsize
        h.has_start = layout.has_start
        h.has_blob = layout.keys.has_text
        h.slot_capacity = _FIRST_SLOTS
        h.index_mask = _FIRST_INDEX - 1
        h.heap_capacity = _FIRST_HEAP
        h.starts_mask = _FIRST_STARTS - 1

    def _point(self) -> None:
        self._table.header = self._header_region.address
        self._table.index = self._index.address
        self._table.slots = self._slots.address
        self._table.heap = self._heap.address
        self._table.starts = self._starts.address
        self.structure = reference(self._table)

    @property
    def open_windows(self) -> int:
        return int(self.header.open_windows)

    @property
    def heap_address(self) -> int | None:
        return self._heap.address

    def oldest_footprint(self) -> int | None:
        """Batch of the oldest footprint of any open window: NO_BATCH if one has none, None if no
        window is open."""
        oldest = int(kernel.tm_oldest_footprint(self.structure))
        return None if oldest < NO_BATCH else oldest

    # Growth

    def make_room(self, need: int, where: str = "") -> None:
        """Grows what a kernel call ran out of."""
        if need & BROKEN:
            raise DamagedSegment(
                "The logged state contradicts the logged input: a window would close in a replay, "
                "or is there twice.",
                where=where or "operator state",
                fix="Run a verification of both logs; restore the damaged files from a backup.",
            )
        h = self.header
        if need & NEED_SLOTS:
            self._grow_slots(h.slot_capacity + _step(h.slot_capacity))
        if need & NEED_INDEX:
            self._grow_index(2 * (h.index_mask + 1))
        if need & NEED_HEAP:
            self._grow_heap(h.heap_capacity + max(_FIRST_HEAP, h.heap_capacity // 8))
        if need & NEED_STARTS:
            self._double_starts()
        self._point()

    def reserve_heap(self, size: int) -> None:
        """Makes sure that blocks of ``size`` bytes together fit, whatever the free lists hold."""
        if self.header.heap_top + size > self.header.heap_capacity:
            self._grow_heap(self.header.heap_top + size + self.header.heap_capacity // 8)
            self._point()

    def _grow_heap(self, size: int) -> None:
        self._heap.grow(size)
        self.header.heap_capacity = size

    def reserve_windows(self, count: int) -> None:
        """Makes room for so many more windows at once."""
        h = self.header
        total = h.slot_top + count
        if total > h.slot_capacity:
            self._grow_slots(total)
        entries = h.index_mask + 1
        while (h.indexed + count) * 2 > entries:
            entries *= 2
        if entries > h.index_mask + 1:
            self._grow_index(entries)
        self._point()

    def _grow_slots(self, capacity: int) -> None:
        if capacity > MOST_WINDOWS:
            raise StorageError(
                f"A bucket cannot hold more than {MOST_WINDOWS:,} open windows.",
                where="operator state",
                fix="Use more buckets.",
            )
        self._slots.grow(capacity * self.layout.stride)
        self.header.slot_capacity = capacity

    def _grow_index(self, entries: int) -> None:
        h = self.header
        before = self._index.view("<u8", h.index_mask + 1).copy()
        self._index.grow(entries * 8)
        self._index.bytes[: entries * 8] = 0
        kernel.tm_reindex(address(before), len(before) - 1, self._index.address, entries - 1)
        h.index_mask = entries - 1

    def _double_starts(self) -> None:
        h = self.header
        entries = h.starts_mask + 1
        before = self._starts.view(_START, entries).copy()
        self._starts.grow(entries * 2 * 16)
        self._starts.bytes[: entries * 2 * 16] = 0
        kernel.tm_restart(address(before), entries - 1, self._starts.address, 2 * entries - 1)
        h.starts_mask = 2 * entries - 1

    # Windows by age of footprint

    def take_oldest(self, before: int, batch: int, most: int) -> Slots:
        """Gives up to ``most`` windows with footprints older than ``before`` the footprint
        ``batch`` and returns them, oldest first."""
        slots = np.empty(min(most, self.open_windows), dtype=np.int64)
        count = kernel.tm_take_oldest(self.structure, before, batch, len(slots), address(slots))
        return slots[:count]

    def list_oldest(
        self,
        most: int | None = None,
        *,
        before: int = LAST_BATCH + 1,
        opened_before: int = LAST_BATCH + 1,
    ) -> Slots:
        """Open windows, oldest footprint first: those with footprints older than ``before`` that
        opened before ``opened_before``."""
        room = self.open_windows if most is None else min(most, self.open_windows)
        slots = np.empty(room, dtype=np.int64)
        count = kernel.tm_list_oldest(self.structure, before, opened_before, room, address(slots))
        return slots[:count]

    def slots(self) -> Slots:
        """All open windows, oldest footprint first."""
        slots = self.list_oldest()
        assert len(slots) == self.open_windows
        return slots

    def renew(self, slots: Slots, batch: int) -> None:
        """Gives windows the footprint ``batch``."""
        kernel.tm_check(self.structure, address(slots), len(slots), batch)

    def footprints(self, slots: Slots) -> npt.NDArray[np.int64]:
        """Batches of the footprints of windows."""
        return self.read_field(slots, FOOTPRINT_PLACE).astype(np.int64)

    def are_open(self, slots: Slots) -> npt.NDArray[np.bool_]:
        """Which slots hold a window that is open."""
        is_open: npt.NDArray[np.bool_] = self.read_field(slots, OPENED_PLACE) >= 0
        return is_open

    def forget_footprints(self) -> None:
        """Marks every window as having none, so that the next batch writes one for each."""
        kernel.tm_forget_footprints(self.structure)

    # Rows in and out

    def read(self, slots: Slots, *, with_states: bool = True) -> SlotRows:
        """Copies of slots."""
        count, layout = len(slots), self.layout
        width = layout.keys.record_bytes
        rows = SlotRows(
            scratch("slot keys", count * width, np.uint8).reshape(count, width),
            np.empty(count, dtype=np.int64) if layout.has_start else None,
            scratch("slot states", count, layout.state) if with_states else None,
        )
        kernel.tm_read_slots(
            self.structure,
            address(slots),
            count,
            address(rows.keys),
            address(rows.starts),
            address(rows.states),
        )
        return rows

    def read_numbers(self, slots: Slots, places: Places) -> list[pa.Array | None]:
        """Whole numbers of slots, a column for each place, as narrow as its numbers are; None where
        some need more than 64 bits."""
        count, columns = len(slots), len(places)
        room = np.empty(columns * count, dtype=np.int64)
        bits = np.zeros(2 * columns, dtype=np.uint64)
        widths = np.empty(columns, dtype=np.uint8)
        kernel.tm_read_numbers(
            self.structure,
            address(slots),
            count,
            address(places),
            columns,
            address(bits),
            address(room),
            address(widths),
        )
        buffer = pa.py_buffer(room)
        return [
            pa.Array.from_buffers(
                _NARROW[width], count, [None, buffer.slice(8 * place * count, width * count)]
            )
            if width
            else None
            for place, width in enumerate(widths.tolist())
        ]

    def read_field(self, slots: Slots, place: Places) -> npt.NDArray[Any]:
        """One whole number of slots, of at most 64 bits."""
        (column,) = self.read_numbers(slots, place)
        assert column is not None
        return numbers(column)

    def read_keys(self, slots: Slots, rows: SlotRows) -> list[pa.Array]:
        """The key columns of slots that were read."""
        blobs = None
        if self.layout.keys.has_text:
            where = (self.structure, address(slots), len(slots))
            total = kernel.tm_gather_blobs(*where, None, None)
            blobs = np.empty(max(1, total), dtype=np.uint8)
            kernel.tm_gather_blobs(*where, None, address(blobs))
        return self.layout.keys.decode(rows.keys, blobs)

    def encode_keys(self, rows: pa.RecordBatch) -> EncodedKeys:
        return self.layout.keys.encode(rows, self.header.seed)

    def insert(
        self,
        keys: EncodedKeys,
        *,
        starts: npt.NDArray[np.int64] | None,
        opened: npt.NDArray[np.int64],
        footprints: npt.NDArray[np.int64],
        fills: npt.NDArray[np.int64] | None,
        states: npt.NDArray[Any],
        where: str,
    ) -> Slots:
        """Adds windows, given from the oldest footprint on; returns where they are."""
        self.reserve_windows(keys.count)
        slots = np.empty(keys.count, dtype=np.int64)
        need = np.zeros(1, dtype=np.int32)
        chained = self.layout.has_start and not self.layout.by_start
        done = 0
        while done < keys.count:
            done = kernel.tm_insert(
                self.structure,
                reference(keys.structure),
                int(self.layout.by_start),
                int(chained),
                address(starts),
                address(opened),
                address(footprints),
                address(fills),
                address(states),
                done,
                address(slots),
                address(need),
            )
            if need[0]:
                self.make_room(int(need[0]), where)
        return slots

    def add_identities(
        self, keys: EncodedKeys, starts: npt.NDArray[np.int64] | None
    ) -> npt.NDArray[np.bool_]:
        """Uses the table as a set: which of the identities were not in it before."""
        is_new = np.zeros(keys.count, dtype=np.uint8)
        need = np.zeros(1, dtype=np.int32)
        done = 0
        while done < keys.count:
            done = kernel.tm_decide(
                self.structure,
                reference(keys.structure),
                address(starts),
                done,
                address(is_new),
                address(need),
            )
            if need[0]:
                self.make_room(int(need[0]))
        return is_new.view(np.bool_)

    def are_identities(
        self, keys: EncodedKeys, starts: npt.NDArray[np.int64] | None
    ) -> npt.NDArray[np.bool_]:
        """Which of the identities are in a table that is used as a set."""
        is_in = np.zeros(keys.count, dtype=np.uint8)
        kernel.tm_are_in(self.structure, reference(keys.structure), address(starts), address(is_in))
        return is_in.view(np.bool_)
