"""Loads the compiled kernel and describes its structures; see ``kernel.h`` for what they mean."""

from __future__ import annotations

import ctypes
import sys
from ctypes import c_int32, c_int64, c_uint64, c_void_p
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from trailmark.errors import TrailmarkError

#: What a call ran out of.
NEED_SLOTS, NEED_INDEX, NEED_HEAP, NEED_STARTS, NEED_PAIRS, NEED_WINDOWS, BROKEN = (
    1 << bit for bit in range(7)
)
HEAP_CLASSES = 96


_HEADER_NUMBERS = (
    *("stride", "key_offset", "key_bytes", "state_offset", "state_bytes", "has_start", "has_blob"),
    *("slot_capacity", "slot_top", "free_head", "index_mask", "open_windows", "indexed"),
    *("oldest", "newest", "heap_capacity", "heap_top", "starts_mask", "starts_used"),
)


class Header(ctypes.Structure):
    """The first page of a table."""

    _fields_ = [
        ("seed", c_uint64),
        *[(name, c_int64) for name in _HEADER_NUMBERS],
        ("heap_free", c_int64 * HEAP_CLASSES),
    ]


#: What precedes key and state in a slot.
SLOT_HEADER = np.dtype(
    [
        ("hash", "<u4"),
        ("fill", "<i4"),
        ("older", "<u4"),
        ("newer", "<u4"),
        ("opened", "<i4"),
        ("footprint", "<i4"),
        ("mark", "<u4"),
        ("chain", "<u4"),
    ]
)


#: A tuple of a join that waits for partners.
TUPLE = np.dtype(
    [
        ("time", "<i8"),
        ("least", "<i8"),
        ("greatest", "<i8"),
        ("previous", "<u4"),
        ("jump", "<u4"),
        ("key", "<u4"),
        ("place", "<u4"),
        ("rank", "u1"),
        ("is_matched", "u1"),
        ("is_gone", "u1"),
        ("unused", "V5"),
    ]
)


class Table(ctypes.Structure):
    _fields_ = [(name, c_void_p) for name in ("header", "index", "slots", "heap", "starts")]


class Keys(ctypes.Structure):
    _fields_ = [
        *[(n, c_void_p) for n in ("records", "hashes", "blob_offsets", "blob_lengths", "blobs")],
        ("count", c_int64),
        ("record_bytes", c_int64),
    ]


class Local(ctypes.Structure):
    _fields_ = [
        *[(name, c_void_p) for name in ("slot", "is_prior", "is_closed")],
        ("capacity", c_int64),
        ("count", c_int64),
    ]


class Pairs(ctypes.Structure):
    _fields_ = [
        *[(name, c_void_p) for name in ("row", "window")],
        ("capacity", c_int64),
        ("count", c_int64),
    ]


class CountWindows(ctypes.Structure):
    _fields_ = [(name, c_int64) for name in ("size", "slide", "batch", "replay", "footprint")]


class TimeWindows(ctypes.Structure):
    _fields_ = [*CountWindows._fields_, ("late_before", c_int64)]


class KeyPieces(ctypes.Structure):
    _fields_ = [(name, c_int64) for name in ("batch", "replay", "footprint")]


class Join(ctypes.Structure):
    _fields_ = [
        *[(name, c_void_p) for name in ("left", "right")],
        *[(name, c_int64) for name in ("before", "after", "most", "adds", "only_unmatched")],
        *[(name, c_int64) for name in ("most_left", "most_right")],
    ]


class Arrivals(ctypes.Structure):
    _fields_ = [
        *[(name, c_void_p) for name in ("side", "time", "asks", "key", "number")],
        ("count", c_int64),
    ]


class States(ctypes.Structure):
    _fields_ = [("base", c_void_p), ("stride", c_int64), ("at", c_int64)]


class Column(ctypes.Structure):
    _fields_ = [("data", c_void_p), ("validity", c_void_p), ("first", c_int64)]


class Updates(ctypes.Structure):
    _fields_ = [("row", c_void_p), ("window", c_void_p), ("count", c_int64)]


class Bytes(ctypes.Structure):
    _fields_ = [("offsets", c_void_p), ("data", c_void_p), ("heap", c_void_p)]


# Arguments of every function: p pointer, q int64, i int32.
_SIGNATURES = {
    "tm_encode_column": "pqqqipqpqq",
    "tm_decode_column": "pqqqqiqpp",
    "tm_encode_lengths": "pqqqippqqp",
    "tm_join_strings": "pqqppqpp",
    "tm_copy_slices": "pppqp",
    "tm_hash_keys": "qpp",
    "tm_hash_4": "pqp",
    "tm_hash_8": "pqp",
    "tm_hash_16": "pqp",
    "tm_hash_texts": "ppqp",
    "tm_digest_fixed": "ppqpqq",
    "tm_digest_strings": "ppppqq",
    "tm_digest_lists": "ppppqqi",
    "tm_digest_sum": "pq",
    "tm_release_closed": "pp",
    "tm_reindex": "pqpq",
    "tm_restart": "pqpq",
    "tm_due_starts": "pqqpq",
    "tm_close_starts": "ppqp",
    "tm_take_oldest": "pqqqp",
    "tm_list_oldest": "pqqqp",
    "tm_check": "ppqq",
    "tm_forget_footprints": "p",
    "tm_oldest_footprint": "p",
    "tm_read_slots": "ppqppp",
    "tm_read_numbers": "ppqpqppp",
    "tm_pick_rows": "pqpqp",
    "tm_load_states": "ppqpp",
    "tm_list_closed": "pp",
    "tm_store_states": "pppp",
    "tm_gather_blobs": "ppqpp",
    "tm_decide": "pppqpp",
    "tm_disjoint_count": "pppqppp",
    "tm_overlapping_count": "pppqppp",
    "tm_time_pairs": "ppppqppppp",
    "tm_insert": "ppiipppppqpp",
    "tm_find_pieces": "pppqppp",
    "tm_meet_pieces": "ppqp",
    "tm_close_pieces": "pp",
    "tm_read_values": "ppqqqpp",
    "tm_values_need": "pq",
    "tm_write_values": "ppqqqpppp",
    "tm_free_values": "ppqq",
    "tm_due_push": "ppppq",
    "tm_due_pop": "ppqqpp",
    "tm_find_keys": "ppqpqp",
    "tm_find_times": "ppqqpqpqp",
    "tm_find_ended": "pqqp",
    "tm_are_in": "pppp",
    "tm_join_keys": "pppiqpp",
    "tm_join_count": "pppppp",
    "tm_join_pairs": "ppppqqpp",
    "tm_join_nearest": "pppqp",
    "tm_join_surplus": "ppiqpqp",
    "tm_join_link": "ppiqq",
    "tm_join_unlink": "pipq",
    "tm_join_release": "ppq",
    "tm_count": "ppp",
    "tm_sum_i64": "ppp",
    "tm_sum_i128": "ppp",
    "tm_sum_f64": "ppp",
    "tm_moments": "ppp",
    "tm_sketch": "pppi",
    "tm_extreme_i64": "pppi",
    "tm_extreme_f64": "pppi",
    "tm_extreme_i128": "pppi",
    "tm_pick_8": "pppii",
    "tm_pick_16": "pppii",
    "tm_extreme_blob": "ppppi",
    "tm_pick_blob": "ppppii",
    "tm_blobs_need": "pp",
    "tm_store_blobs": "pppp",
    "tm_read_blobs": "ppqppp",
    "tm_mean_i128": "pqpp",
    "tm_total_i64": "pqpp",
    "tm_total_decimal": "pqqpp",
    "tm_mean_decimal": "pqqqpp",
}
_UNSIGNED = {"tm_digest_sum"}
_TYPES: dict[str, Any] = {"p": c_void_p, "q": c_int64, "i": c_int32}


def _load() -> ctypes.CDLL:
    if sys.byteorder != "little":
        # Here and not where logs are opened: tables in memory have this order, too.
        raise TrailmarkError(
            "This machine puts the highest byte of a number first; logs have the lowest first.",
            where="sys.byteorder",
            fix="Use a little-endian machine: x86-64, AArch64, ppc64le and most others are.",
        )
    path = Path(__file__).with_name("libkernel.so")
    try:
        library = ctypes.CDLL(str(path))
    except OSError as error:
        raise TrailmarkError(
            f"The compiled kernel cannot be loaded: {error}",
            where=str(path),
            fix="Install Trailmark again (from a clone: make setup).",
        ) from error
    for name, arguments in _SIGNATURES.items():
        function = getattr(library, name)
        function.argtypes = [_TYPES[letter] for letter in arguments]
        function.restype = c_uint64 if name in _UNSIGNED else c_int64
    return library


kernel: Any = _load()


def functions() -> list[str]:
    """The names of everything that the kernel can be called for."""
    return list(_SIGNATURES)


def address(array: npt.NDArray[Any] | None) -> int | None:
    """Where an array's bytes are; the caller keeps the array alive during the call."""
    # NumPy's own ways take several times as long, and do not refuse an array with gaps.
    return None if array is None else pa.py_buffer(array).address


def reference(structure: ctypes.Structure) -> Any:
    return ctypes.byref(structure)


__all__ = [
    "BROKEN",
    "NEED_HEAP",
    "NEED_INDEX",
    "NEED_PAIRS",
    "NEED_SLOTS",
    "NEED_STARTS",
    "NEED_WINDOWS",
    "SLOT_HEADER",
    "TUPLE",
    "Arrivals",
    "Bytes",
    "Column",
    "CountWindows",
    "Header",
    "Join",
    "KeyPieces",
    "Keys",
    "Local",
    "Pairs",
    "States",
    "Table",
    "TimeWindows",
    "Updates",
    "address",
    "functions",
    "kernel",
    "reference",
]
