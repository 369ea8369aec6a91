"""XXH64 as its specification has it, one value at a time, and the bytes that Spark hashes."""

from __future__ import annotations

import math
import struct
from typing import Any

import pyarrow as pa

_MASK = (1 << 64) - 1
_P1, _P2, _P3 = 11400714785074694791, 14029467366897019727, 1609587929392839161
_P4, _P5 = 9650029242287828579, 2870177450012600261
_SPARKS_SEED = 42


def _rotated(value: int, bits: int) -> int:
    return (value << bits | value >> (64 - bits)) & _MASK


def _round(sum: int, word: int) -> int:
    return _rotated((sum + word * _P2) & _MASK, 31) * _P1 & _MASK


def _number(data: bytes) -> int:
    return int.from_bytes(data, "little")


def xxhash64(data: bytes, seed: int = _SPARKS_SEED) -> int:
    rest = data
    if len(data) >= 32:
        sums = [(seed + first) & _MASK for first in (_P1 + _P2, _P2, 0, -_P1)]
        while len(rest) >= 32:
            words = [_number(rest[at : at + 8]) for at in (0, 8, 16, 24)]
            sums = [_round(sum, word) for sum, word in zip(sums, words, strict=True)]
            rest = rest[32:]
        found = sum(_rotated(each, bits) for each, bits in zip(sums, (1, 7, 12, 18), strict=True))
        for each in sums:
            found = ((found & _MASK) ^ _round(0, each)) * _P1 + _P4
    else:
        found = seed + _P5
    found = (found + len(data)) & _MASK
    while len(rest) >= 8:
        found = (_rotated(found ^ _round(0, _number(rest[:8])), 27) * _P1 + _P4) & _MASK
        rest = rest[8:]
    if len(rest) >= 4:
        found = (_rotated(found ^ _number(rest[:4]) * _P1 & _MASK, 23) * _P2 + _P3) & _MASK
        rest = rest[4:]
    for byte in rest:
        found = _rotated(found ^ byte * _P5 & _MASK, 11) * _P1 & _MASK
    for bits, factor in ((33, _P2), (29, _P3)):
        found = (found ^ found >> bits) * factor & _MASK
    return found ^ found >> 32


def hashed_bytes(value: Any, kind: pa.DataType) -> bytes:
    """What Spark hashes of a value, as it is in a row of the oracle; of a decimal its units."""
    t = pa.types
    if t.is_string(kind) or t.is_large_string(kind):
        return str(value).encode()
    if t.is_floating(kind):
        value = math.nan if value != value else value + 0.0
        return struct.pack("<f" if t.is_float32(kind) else "<d", value)
    if t.is_decimal(kind):
        if kind.precision > 18:
            bits = value.bit_length() if value >= 0 else (-value - 1).bit_length()
            return int(value).to_bytes(bits // 8 + 1, "big", signed=True)
        return int(value).to_bytes(8, "little", signed=True)
    is_short = t.is_boolean(kind) or kind.bit_width < 32 or t.is_int32(kind) or t.is_date32(kind)
    return int(value).to_bytes(4 if is_short else 8, "little", signed=True)
