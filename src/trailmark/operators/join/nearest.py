"""The latest right tuple that is not after a left one, for left tuples whose time is over."""

from __future__ import annotations

import numpy as np

from trailmark.kernel.library import address, kernel, reference
from trailmark.operators.join.arguments import LEFT
from trailmark.operators.join.condition import holds
from trailmark.operators.join.matching import Asking, Matching, Pairs, kernel_join
from trailmark.operators.join.rules import JoinRules
from trailmark.operators.join.state import JoinState
from trailmark.operators.row_blocks import Numbers


def nearest(state: JoinState, rules: JoinRules, numbers: Numbers, batch: int) -> Numbers:
    """The numbers of the right tuples that left ones are paired with; -1 where there is none."""
    if rules.condition is not None:
        return _nearest_that_hold(state, rules, numbers, batch)
    found = np.empty(len(numbers), dtype=np.int64)
    join = kernel_join(state, rules.reach, 0, False, False)
    kernel.tm_join_nearest(
        state.keys.structure, reference(join), address(numbers), len(numbers), address(found)
    )
    return found


def _nearest_that_hold(state: JoinState, rules: JoinRules, numbers: Numbers, batch: int) -> Numbers:
    """The same among those of which the condition holds: it is asked about all of them."""
    asking = Asking.waiting(state, LEFT, numbers)
    pairs = Matching(state, asking, rules.reach, most=rules.most_pairs).pairs(batch)
    found = np.full(len(numbers), -1, dtype=np.int64)
    if not len(pairs):
        return found
    left, right = (
        waiting.rows.take(each)
        for waiting, each in zip(state.sides, (numbers[pairs.arrival], pairs.partner), strict=True)
    )
    assert rules.condition is not None
    chosen = _last_of_each(state, pairs.chosen(holds(rules.condition, left, right, batch)))
    found[chosen.arrival] = chosen.partner
    return found


def _last_of_each(state: JoinState, pairs: Pairs) -> Pairs:
    """Of the pairs of each left tuple the one with the latest right one."""
    times = state.sides[1 - LEFT].tuples["time"][pairs.partner]
    order = np.lexsort((pairs.partner, times, pairs.arrival))
    is_last = np.diff(pairs.arrival[order], append=-1) != 0
    return Pairs(pairs.arrival[order][is_last], pairs.partner[order][is_last])
