"""How many different values there are, from a sketch of them: HyperLogLog.

A state has registers, one byte each. The registers are those that Spark's ``approx_count_distinct``
has after the same values, whatever their order: so sketches of several sessions become one, and
neither batches nor replays change anything. What is read from them differs from Spark where Spark
corrects what it reads by measured tables.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from trailmark.kernel.columns import arrow_fixed
from trailmark.kernel.library import kernel
from trailmark.windows.bound import Array, BatchColumns, StateField
from trailmark.windows.builtin import BuiltIn, physical_of

Estimates = npt.NDArray[np.float64]

_HASH_BITS = 64
#: Raw estimates from so many times the number of registers on are unbiased.
_UNBIASED_FROM = 5.0
#: Up to so many times the number of registers, those that are empty tell more.
_LINEAR_UP_TO = 2.5
#: Registers that are counted at a time.
_AT_ONCE = 1 << 22


def register_bits(rsd: float) -> int:
    """The bits of a hash that choose a register, so that the relative standard deviation of
    estimates is this at most; Spark's formula."""
    return math.ceil(2.0 * math.log(1.106 / rsd) / math.log(2.0))


class Sketch(BuiltIn):
    """approx_count_distinct."""

    def _settle(self, kind: Any) -> None:
        if physical_of(kind) is None:
            raise self._refuse()
        assert self._call.rsd is not None
        self._bits = register_bits(self._call.rsd)
        count = 1 << self._bits
        self.physical = "hash"
        self.fields = (StateField("registers", ("u1", (count,)), pa.binary(count), 0),)
        self.result_type = pa.int64()

    def _call_kernel(self, arguments: list[Any]) -> None:
        kernel.tm_sketch(*arguments, self._bits)

    def result(self, states: Array, columns: BatchColumns, heap: int | None) -> pa.Array:
        found = estimates(states[self.name]["registers"])
        return arrow_fixed(np.floor(found + 0.5).astype(np.int64), pa.int64())


def estimates(registers: npt.NDArray[np.uint8]) -> Estimates:
    """How many different values sketches have seen, by their registers: a sketch in every row."""
    count = registers.shape[1]
    met = _histograms(registers)
    raw = _alpha(count) * count**2 / _inverse(met)
    empty = met[:, 0]
    is_linear = (empty > 0) & (raw <= _LINEAR_UP_TO * count)
    is_between = ~is_linear & (raw < _UNBIASED_FROM * count)
    found: Estimates = raw
    found[is_linear] = count * np.log(count / empty[is_linear])
    found[is_between] = _improved(met[is_between], count)
    return found


def _histograms(registers: npt.NDArray[np.uint8]) -> npt.NDArray[np.int64]:
    """How many registers of each sketch have each value, from 0 to the greatest there can be."""
    sketches, count = registers.shape
    values = _HASH_BITS - count.bit_length() + 3  # the greatest is one more than the bits left
    found = np.empty((sketches, values), dtype=np.int64)
    step = max(1, _AT_ONCE // count)
    for first in range(0, sketches, step):
        part = np.minimum(registers[first : first + step], values - 1).astype(np.int64)
        part += values * np.arange(len(part))[:, None]
        met = np.bincount(part.reshape(-1), minlength=values * len(part))
        found[first : first + step] = met.reshape(-1, values)
    return found


def _alpha(count: int) -> float:
    """What makes raw estimates unbiased in the long run."""
    return {16: 0.673, 32: 0.697, 64: 0.709}.get(count, 0.7213 / (1 + 1.079 / count))


def _improved(met: npt.NDArray[np.int64], count: int) -> Estimates:
    """Estimates without a bias where raw ones have one, by the method of Ertl (2017), "New
    cardinality estimation algorithms for HyperLogLog sketches"; no register is at its greatest."""
    share = met[:, 0] / count
    empty, factor = share.copy(), 1.0
    while (share := share * share).any():
        empty += share * factor
        factor *= 2
    inverse = count * empty + _inverse(met) - met[:, 0]
    found: Estimates = count**2 / (2 * math.log(2) * inverse)
    return found


def _inverse(met: npt.NDArray[np.int64]) -> Estimates:
    """The sum of 2 to the power of minus each register."""
    found: Estimates = (met * np.ldexp(1.0, -np.arange(met.shape[1]))).sum(axis=1)
    return found
