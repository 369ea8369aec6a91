"""Which tuples of the queues belong together: those with the same place in the queue of their
key, as far as all inputs have one."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from trailmark.operators.barrier.state import BarrierState
from trailmark.operators.row_blocks import Numbers
from trailmark.values import dataclass

_NONE: Numbers = np.empty(0, dtype=np.int64)


@dataclass(frozen=True, slots=True)
class Complete:
    """The numbers of the tuples that leave, of each input, side by side, and the keys of which
    nobody is left then."""

    numbers: list[Numbers]
    ended_keys: Numbers


def complete(state: BarrierState, came_at: Sequence[Numbers]) -> Complete:
    """What a batch has completed.

    ``came_at`` tells of the tuples that it has just brought when each of them came: rows are in the
    order in which their last tuples did.
    """
    queues = state.queues
    ended = _NONE
    if not all(queue.in_flight for queue in queues) or not any(map(len, came_at)):
        return Complete([_NONE] * len(queues), ended)
    if state.keys is None:
        waiting = [queue.numbers() for queue in queues]
        count = min(map(len, waiting))
        found = [each[:count] for each in waiting]
    else:
        found, ended = _by_key(state, [len(came) for came in came_at])
    at = np.full(len(found[0]), -1, dtype=np.int64)
    for queue, each, came in zip(queues, found, came_at, strict=True):
        first = queue.count - len(came)
        is_new = each >= first
        at[is_new] = np.maximum(at[is_new], came[each[is_new] - first])
    order = np.argsort(at)
    return Complete([each[order] for each in found], ended)


def _by_key(state: BarrierState, came: Sequence[int]) -> tuple[list[Numbers], Numbers]:
    """Of each key as many as every input has, key by key, and the keys that nobody is left of. Only
    keys that have just come can be complete; the others are passed over."""
    keys = [queue.tuples["key"] for queue in state.queues]
    new = [each[len(each) - count :] for each, count in zip(keys, came, strict=True)]
    width = max(int(each.max(initial=0)) for each in new) + 1
    is_new = np.zeros(width, dtype=np.bool_)
    for each in new:
        is_new[each] = True
    numbers, slots = [], []
    for queue, each in zip(state.queues, keys, strict=True):
        is_met = (queue.tuples["is_gone"] == 0) & (each < width)
        is_met[is_met] = is_new[each[is_met]]
        numbers.append(np.flatnonzero(is_met))
        slots.append(each[is_met].astype(np.int64))
    waiting = np.stack([np.bincount(each, minlength=width) for each in slots])
    counts = waiting.min(axis=0)
    is_ended = (counts > 0) & (waiting == counts).all(axis=0)
    found = [_first(each, of, counts) for each, of in zip(numbers, slots, strict=True)]
    return found, np.flatnonzero(is_ended)


def _first(numbers: Numbers, slots: Numbers, counts: Numbers) -> Numbers:
    """The first so many tuples of each key, by key."""
    order = np.argsort(slots, kind="stable")
    by_key = slots[order]
    starts = np.flatnonzero(np.diff(by_key, prepend=-1))
    lengths = np.diff(np.append(starts, len(by_key)))
    rank = np.arange(len(by_key)) - np.repeat(starts, lengths)
    return numbers[order[rank < counts[by_key]]]
