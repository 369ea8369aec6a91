"""The states of sessions as a batch finds them: of those that merge, one state.

Sessions that merge are taken in the order of their starts: `first` is that of the earliest, `last`
that of the latest, and sums of floating-point numbers are added up in this order.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from trailmark.kernel.columns import arrow_fixed, plain, view
from trailmark.kernel.library import kernel, reference
from trailmark.operators.sessions.cut import Numbers
from trailmark.windows.bound import (
    Array,
    Assignment,
    BoundFunction,
    column_structure,
    states_structure,
)
from trailmark.windows.builtin import BuiltIn, Count, Held, Moments, Sum
from trailmark.windows.sketches import Sketch
from trailmark.windows.userdefined import UserDefined


def carry(
    function: BoundFunction, states: Array, before: Array, into: Numbers, texts: pa.Array | None
) -> int | None:
    """Puts the states that sessions had ``before`` ``into`` those with these numbers, which are
    fresh. ``texts`` are those that the states before hold. Returns where the states find them,
    which is there for as long as ``texts`` is."""
    if isinstance(function, Held):
        return _carry_held(function, states, before, into, texts)
    mine, earlier = states[function.name], before[function.name]
    if isinstance(function, Count):
        np.add.at(mine["count"], into, earlier["count"])
    elif isinstance(function, Sum):
        _carry_sums(function, states, before, into)
    elif isinstance(function, Moments):
        for one, other in _in_turn(mine, earlier, into):
            mine[one] = _together(mine[one], earlier[other])
    elif isinstance(function, Sketch):
        np.maximum.at(mine["registers"], into, earlier["registers"])
    else:
        assert isinstance(function, UserDefined)
        for one, other in _in_turn(mine, earlier, into):
            names = [item.name for item in function.fields]
            held = {name: np.ascontiguousarray(mine[name][one]) for name in names}
            later = {name: np.ascontiguousarray(earlier[name][other]) for name in names}
            merged = function.checked("merge", len(one), held, later)
            for name in names:
                mine[name][one] = merged[name]
    return None


def _in_turn(mine: Array, earlier: Array, into: Numbers) -> Iterator[tuple[Numbers, Numbers]]:
    """Copies the first state of each session, then gives the pairs of a session and a further state
    of it, so that no session is there twice at a time."""
    turn = np.arange(len(into)) - np.searchsorted(into, into)
    first = turn == 0
    mine[into[first]] = earlier[first]
    for number in range(1, int(turn.max(initial=0)) + 1):
        other = np.flatnonzero(turn == number)
        yield into[other], other


def _carry_sums(function: Sum, states: Array, before: Array, into: Numbers) -> None:
    mine, earlier = states[function.name], before[function.name]
    if function.physical == "f64":
        with np.errstate(all="ignore"):  # sums become infinite, or NaN, as in the kernel
            np.add.at(mine["sum"], into, earlier["sum"])
        np.add.at(mine["count"], into, earlier["count"])
        return
    kind = function.fields[0].kind
    sums = view(arrow_fixed(np.ascontiguousarray(earlier["sum"]), kind))
    kernel.tm_sum_i128(
        reference(states_structure(states, function.at)),
        reference(column_structure(sums)),
        reference(Assignment(None, into.astype(np.int32)).structure()),
    )
    # The kernel has counted states instead of tuples; a sum that is lost stays so.
    counts, least = np.zeros(len(mine), dtype=np.int64), np.zeros(len(mine), dtype=np.int64)
    np.add.at(counts, into, earlier["count"])
    np.minimum.at(least, into, earlier["count"])
    is_lost = (mine["count"] < 0) | (least < 0)
    mine["count"] = np.where(is_lost, -1, counts)
    mine["sum"][is_lost] = 0


@np.errstate(all="ignore")
def _together(one: Array, other: Array) -> Array:
    """Moments of the tuples of both."""
    count = one["count"] + other["count"]
    share = np.divide(other["count"], count, out=np.zeros(len(one)), where=count > 0)
    delta = other["mean"] - one["mean"]
    merged = one.copy()
    merged["count"] = count
    merged["mean"] = one["mean"] + delta * share
    merged["m2"] = one["m2"] + other["m2"] + delta * delta * (one["count"] * share)
    merged[one["count"] == 0] = other[one["count"] == 0]
    merged[other["count"] == 0] = one[other["count"] == 0]
    return merged


def _carry_held(
    function: Held, states: Array, before: Array, into: Numbers, texts: pa.Array | None
) -> int | None:
    """Min, max, first and last take the values that were held like those of tuples."""
    earlier = before[function.name]
    values = _held_values(function, earlier, texts)
    seen = view(values)
    rows = np.where(earlier["seen"] > 0, into, -1).astype(np.int32)
    function.fold_values(states, seen, Assignment(None, rows))
    if texts is None:
        return None
    states[function.name]["in_batch"] = 0
    return seen.data


def _held_values(function: BuiltIn, earlier: Array, texts: pa.Array | None) -> pa.Array:
    if texts is not None:
        return plain(texts)
    is_value: npt.NDArray[Any] = earlier["seen"] == 1
    return arrow_fixed(np.ascontiguousarray(earlier["value"]), function.fields[0].kind, is_value)
