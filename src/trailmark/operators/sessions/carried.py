"""The states of sessions as a batch finds them: of those that merge, one state.

Sessions that merge are taken in the order of their starts: `first` is that of the earliest, `last`
that of the latest, sums of floating-point numbers are added up in this order, and values that are
collected come in it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from trailmark.kernel.columns import arrow_fixed, plain, view
from trailmark.kernel.library import address, kernel, reference
from trailmark.operators.keyed.columns import list_counts
from trailmark.operators.sessions.columns import OpenSessions
from trailmark.operators.sessions.cut import Numbers
from trailmark.values import dataclass
from trailmark.windows.blocks import held
from trailmark.windows.bound import (
    Array,
    Assignment,
    BoundFunction,
    column_structure,
    states_structure,
)
from trailmark.windows.builtin import BuiltIn, Count, Held, Moments, Sum
from trailmark.windows.collected import Collected
from trailmark.windows.functions import State
from trailmark.windows.sketches import Sketch
from trailmark.windows.userdefined import UserDefined, chosen, joined


@dataclass(frozen=True, slots=True)
class Heap:
    """Where states find the texts and values that they hold, for as long as it is kept."""

    address: int | None = None
    kept: object = None


def carry(function: BoundFunction, states: Array, sessions: OpenSessions, into: Numbers) -> Heap:
    """Puts the states that ``sessions`` had ``into`` those with these numbers, which are fresh and
    come in order. Returns where the new ones find what they hold."""
    before, kept = sessions.states, sessions.held.get(function.name, {})
    if isinstance(function, Held):
        return _carry_held(function, states, before, into, kept.get("value"))
    if isinstance(function, Collected):
        lists = kept["values"]
        met, owners = np.unique(np.repeat(into, list_counts(lists)), return_inverse=True)
        blocks = function.gather(states, met, owners, plain(lists.flatten()))
        return in_heap(function, states, blocks)
    if isinstance(function, UserDefined):
        return _carry_users(function, states, function.as_given(before, kept), into)
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
    return Heap()


def in_heap(function: BoundFunction, states: Array, blocks: npt.NDArray[np.uint8]) -> Heap:
    """Has states find what they hold in these bytes."""
    for item in function.fields:
        if item.is_held:
            held(states, function.at + item.at)["in_batch"] = 0
    return Heap(address(blocks), blocks)


def _turns(into: Numbers) -> tuple[Numbers, Numbers]:
    """The sessions that go on, and which of the states of its own session each one is."""
    return np.unique(into), np.arange(len(into)) - np.searchsorted(into, into)


def _in_turn(mine: Array, earlier: Array, into: Numbers) -> Iterator[tuple[Numbers, Numbers]]:
    """Copies the first state of each session, then gives the pairs of a session and a further state
    of it, so that no session is there twice at a time."""
    _, turn = _turns(into)
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


def _carry_users(function: UserDefined, states: Array, before: State, into: Numbers) -> Heap:
    met, turn = _turns(into)
    values = chosen(before, np.flatnonzero(turn == 0))
    for number in range(1, int(turn.max(initial=0)) + 1):
        other = np.flatnonzero(turn == number)
        one = np.searchsorted(met, into[other])
        merged = function.checked("merge", len(one), chosen(values, one), chosen(before, other))
        places = np.arange(len(met))
        places[one] = len(met) + np.arange(len(one))
        values = chosen(joined(values, merged), places)
    return in_heap(function, states, function.put(states, met, values))


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
) -> Heap:
    """Min, max, first and last take the values that were held like those of tuples."""
    earlier = before[function.name]
    values = _held_values(function, earlier, texts)
    seen = view(values)
    rows = np.where(earlier["seen"] > 0, into, -1).astype(np.int32)
    function.fold_values(states, seen, Assignment(None, rows))
    if texts is None:
        return Heap()
    states[function.name]["in_batch"] = 0
    return Heap(seen.data, values)


def _held_values(function: BuiltIn, earlier: Array, texts: pa.Array | None) -> pa.Array:
    if texts is not None:
        return plain(texts)
    is_value: npt.NDArray[Any] = earlier["seen"] == 1
    return arrow_fixed(np.ascontiguousarray(earlier["value"]), function.fields[0].kind, is_value)
