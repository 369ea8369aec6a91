"""What is wrong is found, be it the user's code or the engine's, and told so that one can act."""

from __future__ import annotations

import itertools
import random
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import trailmark as tm
from tests.unit.testing.samples import add, counted, sales, total
from trailmark.engine import opening
from trailmark.errors import TrailmarkError
from trailmark.operators.aggregate import Aggregate
from trailmark.recovery import RecoveryPlan, plan_recovery
from trailmark.testing import RecoveryDiffers, run
from trailmark.windows.functions import State

_calls = 0
_known: dict[str, int] = {}


class _Remembering:
    """Counts its calls in an attribute, which is no state."""

    def __init__(self) -> None:
        self.calls = 0

    def update(self, state: State, window: Any, price: pa.Array) -> State:
        self.calls += 1
        return add({"total": state["total"] + self.calls}, window, price)


def _closing_over() -> Callable[..., State]:
    calls = itertools.count()

    def update(state: State, window: Any, price: pa.Array) -> State:
        return add({"total": state["total"] + next(calls)}, window, price)

    return update


def _with_a_global(state: State, window: Any, price: pa.Array) -> State:
    global _calls
    _calls += 1
    return add({"total": state["total"] + _calls}, window, price)


def _with_a_default(state: State, window: Any, price: pa.Array, seen: Any = []) -> State:  # noqa: B006
    seen.append(len(price))
    return add({"total": state["total"] + len(seen)}, window, price)


def _of_the_whole_batch(state: State, window: Any, price: pa.Array) -> State:
    return add({"total": state["total"] + len(price)}, window, price)


_HIDDEN: dict[str, Callable[..., State]] = {
    "attribute": _Remembering().update,
    "closure": _closing_over(),
    "global": _with_a_global,
    "default": _with_a_default,
    "whole batch": _of_the_whole_batch,
}


@pytest.mark.parametrize("update", _HIDDEN.values(), ids=_HIDDEN.keys())
def test_state_outside_of_the_declared_one_is_noticed(update: Callable[..., State]) -> None:
    with pytest.raises(RecoveryDiffers, match="not the same after a crash") as caught:
        run(counted(total(update)), sales(4), crash_at=[1, 2, 3])
    assert isinstance(caught.value, AssertionError)
    assert isinstance(caught.value, TrailmarkError)


def test_the_code_that_is_given_is_left_as_it_was() -> None:
    remembering, before = _Remembering(), _calls
    with pytest.raises(RecoveryDiffers):
        run(counted(total(remembering.update)), sales(4), crash_at=2)
    with pytest.raises(RecoveryDiffers):
        run(counted(total(_with_a_global)), sales(4), crash_at=2)
    assert (remembering.calls, _calls) == (0, before)


@pytest.mark.parametrize("noise", [random.random, time.perf_counter], ids=["random", "clock"])
def test_what_differs_without_a_crash_is_told_apart(noise: Callable[[], float]) -> None:
    def update(state: State, window: Any, price: pa.Array) -> State:
        return add({"total": state["total"] + noise()}, window, price)

    query = counted(total(update))
    with pytest.raises(RecoveryDiffers, match="in two runs without a crash") as caught:
        run(query, sales(), crash_at="everywhere")
    assert "random numbers" in caught.value.fix
    assert run(query, sales()).runs == 0, "nothing is compared if nothing crashes"


def test_the_report_names_the_crash_the_rows_and_likely_causes() -> None:
    batches = [[{"item": 1, "price": 1.0}]] * 3
    with pytest.raises(RecoveryDiffers) as caught:
        run(counted(total(_Remembering().update), 3), batches, crash_at=2)
    assert caught.value.what.splitlines() == [
        "Results of batch 2 are not the same after a crash.",
        "  only without it:",
        "    item=1, value=9.0",  # 1 + 1, 1 + 2, 1 + 3
        "  only after the crash:",
        "    item=1, value=7.0",  # the last process had not counted before
    ]
    assert caught.value.where.startswith(
        "killed in batch 2, with its input logged and no output (rename out/00000/0000"
    )
    assert "attributes" in caught.value.fix


def test_only_a_few_of_many_rows_are_shown() -> None:
    batches = [[{"item": item, "price": 1.0} for item in range(40)]] * 2
    with pytest.raises(RecoveryDiffers) as caught:
        run(counted(total(_Remembering().update), 2), batches, crash_at=1)
    assert caught.value.what.count("... and 35 more") == 2
    assert len(caught.value.what.splitlines()) == 15


def test_an_error_that_only_comes_after_a_crash_is_told_with_the_crash() -> None:
    def update(state: State, window: Any, price: pa.Array) -> State:
        _known.setdefault("first", len(price))
        if price[0].as_py() == 3.0 and _known["first"] != 2:
            raise KeyError("first")
        return add(state, window, price)

    batches = [
        [{"item": 1, "price": 1.0}, {"item": 2, "price": 1.0}],
        [{"item": 1, "price": 3.0}],
    ]
    assert run(counted(total(update)), batches).results.num_rows == 0
    with pytest.raises(RecoveryDiffers, match="Batch 1 raised KeyError: 'first'") as caught:
        run(counted(total(update)), batches, crash_at=1)
    assert isinstance(caught.value.__cause__, KeyError)


def test_an_error_without_a_crash_is_raised_as_it_is() -> None:
    def update(state: State, window: Any, price: pa.Array) -> State:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        run(counted(total(update)), sales(), crash_at=1)


# The engine may be wrong, too.


def test_a_recovery_that_loses_a_footprint_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    def losing(*arguments: Any) -> RecoveryPlan:
        plan = plan_recovery(*arguments)
        return replace(plan, footprints=plan.footprints[1:])

    monkeypatch.setattr(opening, "plan_recovery", losing)
    with pytest.raises(RecoveryDiffers, match="killed in batch 2"):
        run(counted(tm.sum("price")), sales(), crash_at=2)


def test_a_replay_that_changes_a_state_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    replayed = Aggregate.replay

    def twice(self: Aggregate, table: Any, given: Any, where: str) -> None:
        replayed(self, table, given, where)
        replayed(self, table, given, where)

    monkeypatch.setattr(Aggregate, "replay", twice)
    with pytest.raises(RecoveryDiffers, match="not the same after a crash"):
        run(counted(tm.sum("price"), 1_000), sales(4), crash_at=3, checkpoint=tm.Continuous())


def test_a_state_that_is_recovered_wrong_in_the_end_is_noticed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    load = Aggregate.load

    def forgetting(self: Aggregate, table: Any, footprints: pa.RecordBatch, where: str) -> None:
        at = footprints.schema.get_field_index("value.count")
        zeros = pa.array(np.zeros(footprints.num_rows), footprints.schema.field(at).type)
        changed = footprints.set_column(at, footprints.schema.field(at), zeros)
        load(self, table, changed, where)

    monkeypatch.setattr(Aggregate, "load", forgetting)
    with pytest.raises(RecoveryDiffers, match="The state recovered in the end is not the same"):
        run(counted(tm.avg("price"), 1_000), sales(), crash_at=tm.testing.Crash(0, 0))
