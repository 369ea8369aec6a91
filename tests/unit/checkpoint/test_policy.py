from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from trailmark.checkpoint.policy import Continuous, NoCheckpoint
from trailmark.errors import SettingError


@pytest.mark.parametrize("name", ["q", "u"])
@pytest.mark.parametrize("value", [-1, 2.5, "100", True, float("nan")])
def test_a_target_that_is_no_count_is_refused_by_name_and_value(name: str, value: Any) -> None:
    with pytest.raises(SettingError) as refused:
        Continuous(**{name: value})
    assert refused.value.what.startswith(f"{name} must be a whole number")
    assert repr(value) in refused.value.what
    assert refused.value.where == f"Continuous({name}=...)"


@pytest.mark.parametrize("value", [0, 1, 10**12, None])
def test_a_target_may_be_any_count_or_left_out(value: int | None) -> None:
    assert (Continuous(q=value, u=value).q, Continuous(q=value, u=value).u) == (value, value)


@pytest.mark.parametrize("given", [{"interval": "5 ms"}, {"period": "100 ms"}])
def test_half_a_budget_is_refused_with_an_example(given: dict[str, str]) -> None:
    with pytest.raises(SettingError, match="interval and period belong together") as refused:
        Continuous(**given)  # type: ignore[arg-type]
    assert refused.value.where == "Continuous(interval=..., period=...)"
    assert 'interval="5 ms"' in refused.value.fix


@pytest.mark.parametrize(
    ("interval", "period"), [("0 ms", "100 ms"), ("101 ms", "100 ms"), ("0 ms", "0 ms")]
)
def test_an_interval_of_nothing_or_longer_than_its_period_is_refused(
    interval: str, period: str
) -> None:
    with pytest.raises(SettingError, match="longer than zero and at most as long as period"):
        Continuous(interval=interval, period=period)


@pytest.mark.parametrize("name", ["interval", "period"])
@pytest.mark.parametrize("value", ["soon", "5", 5, timedelta(seconds=-1)])
def test_a_duration_that_is_none_is_refused_by_name(name: str, value: Any) -> None:
    given = {"interval": "1 ms", "period": "1 second", name: value}
    with pytest.raises(SettingError, match="not a duration") as refused:
        Continuous(**given)
    assert refused.value.where == name


def test_durations_are_taken_as_text_or_timedelta() -> None:
    budget = Continuous(interval=timedelta(milliseconds=5), period="100 ms")
    assert (budget.interval_us, budget.period_us) == (5_000, 100_000)
    assert (Continuous().interval_us, Continuous().period_us) == (0, 0)


def test_an_interval_as_long_as_its_period_is_allowed() -> None:
    assert Continuous(interval="100 ms", period="100 ms").interval_us == 100_000


def test_policies_are_described_by_all_they_were_given() -> None:
    assert Continuous(q=1, u=2, interval="3 us", period="4 us").describe() == {
        "policy": "continuous",
        "q": 1,
        "u": 2,
        "interval_us": 3,
        "period_us": 4,
        "objective_us": None,
    }
    assert Continuous().describe() == {
        "policy": "continuous",
        "q": None,
        "u": None,
        "interval_us": None,
        "period_us": None,
        "objective_us": None,
    }
    assert NoCheckpoint().describe() == {"policy": "none"}


def test_only_no_checkpoint_writes_no_footprints() -> None:
    assert Continuous().writes_footprints
    assert not NoCheckpoint().writes_footprints


def test_equal_policies_are_equal_values() -> None:
    assert Continuous(q=5) == Continuous(q=5)
    assert Continuous(q=5) != Continuous(q=6)
    assert hash(Continuous(q=5, interval="1 ms", period="1 s")) == hash(
        Continuous(q=5, interval="1 ms", period="1 s")
    )
