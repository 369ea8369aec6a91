"""Policies as values: what they refuse, and how they describe themselves."""

from __future__ import annotations

import json
import pickle
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import pytest

from tests.support.policies import ONE_OF_EACH, VARIANTS
from trailmark.checkpoint.arguments import budget_us
from trailmark.checkpoint.policy import (
    Continuous,
    CostBenefit,
    Delta,
    FullSnapshot,
    NoCheckpoint,
    Periodic,
    Policy,
    SlowWindows,
    UpstreamBackup,
)
from trailmark.errors import SettingError

_NAN, _INFINITY = float("nan"), float("inf")

#: What is right for the arguments that a policy cannot do without.
_NEEDED: dict[type[Policy], dict[str, Any]] = {
    Continuous: {},
    CostBenefit: {"failure_rate": "1 per day"},
    SlowWindows: {"threshold": "1 second", "period": "1 second"},
    FullSnapshot: {"every": 2},
    Periodic: {"every": 2},
    Delta: {"every": 2},
}
_BUDGET = {"interval": "1 ms", "period": "1 second"}

_NO_COUNT: list[Any] = [-1, 2.5, "100", "often", True, False, _NAN, [1]]
_NO_POSITIVE: list[Any] = [*_NO_COUNT, 0, None]
_NO_DURATION: list[Any] = ["often", "5", "", 5, 2.5, _NAN, True, False, [1], timedelta(seconds=-1)]
_NO_TIME: list[Any] = ["0 seconds", timedelta(0)]
_NO_RATE: list[Any] = ["often", "1", "per day", "-1 per day", "1 per year", None, [1], True, False]
_NO_AMOUNT: list[Any] = [0, -1, -0.5, _NAN, _INFINITY]
_NO_EVERY: list[Any] = [v for v in _NO_DURATION if v != 5] + [*_NO_TIME, 0, -1, None]

_WRONG: list[tuple[type[Policy], str, Sequence[Any]]] = [
    (Continuous, "q", _NO_COUNT),
    (Continuous, "u", _NO_COUNT),
    (Continuous, "interval", _NO_DURATION),
    (Continuous, "period", _NO_DURATION),
    (Continuous, "objective", [*_NO_DURATION, *_NO_TIME]),
    (CostBenefit, "failure_rate", [*_NO_RATE, *_NO_AMOUNT]),
    (CostBenefit, "weight", ["often", None, True, False, [1], *_NO_AMOUNT]),
    (CostBenefit, "interval", _NO_DURATION),
    (CostBenefit, "period", _NO_DURATION),
    (SlowWindows, "threshold", [*_NO_DURATION, None]),
    (SlowWindows, "period", [*_NO_DURATION, *_NO_TIME, None]),
    (SlowWindows, "shots", _NO_POSITIVE),
    (FullSnapshot, "every", _NO_EVERY),
    (FullSnapshot, "asynchronous", ["often", 1, 0, None, _NAN]),
    (Periodic, "every", _NO_EVERY),
    (Periodic, "asynchronous", ["often", 1, 0, None, _NAN]),
    (Delta, "every", _NO_EVERY),
    (Delta, "full_every", _NO_POSITIVE),
]


def _make(kind: type[Policy], name: str, value: Any) -> Policy:
    budget = _BUDGET if name in _BUDGET and kind in (Continuous, CostBenefit) else {}
    return kind(**{**_NEEDED[kind], **budget, name: value})


@pytest.mark.parametrize(
    ("kind", "name", "value"),
    [
        pytest.param(kind, name, value, id=f"{kind.__name__}-{name}-{value!r}")
        for kind, name, values in _WRONG
        for value in values
    ],
)
def test_a_wrong_value_is_refused_by_name_and_value(
    kind: type[Policy], name: str, value: Any
) -> None:
    with pytest.raises(SettingError) as refused:
        _make(kind, name, value)
    said = f"{refused.value.what} {refused.value.where}"
    assert name in said
    assert repr(value) in said


def test_what_was_right_before_does_not_make_an_equal_wrong_value_right() -> None:
    """True == 1 == 1.0, and whoever remembers answers by value must not mix them up."""
    assert CostBenefit(failure_rate=1).failures_per_second == 1
    assert CostBenefit(failure_rate=1.0).failures_per_second == 1
    with pytest.raises(SettingError, match="True"):
        CostBenefit(failure_rate=True)


@pytest.mark.parametrize("name", ["q", "u"])
@pytest.mark.parametrize("value", [-1, 2.5, "100", True, _NAN])
def test_a_target_that_is_no_count_is_refused_with_what_is_one(name: str, value: Any) -> None:
    with pytest.raises(SettingError) as refused:
        Continuous(**{name: value})
    assert refused.value.what.startswith(f"{name} must be a whole number")
    assert repr(value) in refused.value.what
    assert refused.value.where == f"Continuous({name}=...)"


@pytest.mark.parametrize("value", [0, 1, 10**12, None])
def test_a_target_may_be_any_count_or_left_out(value: int | None) -> None:
    assert (Continuous(q=value, u=value).q, Continuous(q=value, u=value).u) == (value, value)


@pytest.mark.parametrize("kind", [Continuous, CostBenefit])
@pytest.mark.parametrize("given", [{"interval": "5 ms"}, {"period": "100 ms"}])
def test_half_a_budget_is_refused_with_an_example(
    kind: type[Continuous | CostBenefit], given: dict[str, str]
) -> None:
    with pytest.raises(SettingError, match="interval and period belong together") as refused:
        kind(**{**_NEEDED[kind], **given})
    assert refused.value.where == f"{kind.__name__}(interval=..., period=...)"
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


def test_an_objective_beside_targets_is_refused() -> None:
    for targets in ({"q": 5}, {"u": 0}, {"q": 5, "u": 5}):
        with pytest.raises(SettingError, match="either an objective or targets"):
            Continuous(objective="1 second", **targets)  # type: ignore[arg-type]


def test_more_shots_than_microseconds_are_refused() -> None:
    assert SlowWindows("1 s", "4 us", shots=4).shots == 4
    with pytest.raises(SettingError) as refused:
        SlowWindows("1 s", "4 us", shots=5)
    assert refused.value.where == "SlowWindows(shots=...)"


def test_durations_are_taken_as_text_or_timedelta() -> None:
    assert budget_us(timedelta(milliseconds=5), "100 ms") == (5_000, 100_000)
    assert budget_us(None, None) == (0, 0)
    assert Continuous.within(timedelta(seconds=2)) == Continuous(objective=timedelta(seconds=2))
    assert Continuous.within("2 seconds").objective_us == 2_000_000
    assert FullSnapshot(timedelta(seconds=3)).every_us == 3_000_000
    assert Delta("3 s").every_us == 3_000_000
    assert Delta(3).every_us is None


def test_an_interval_as_long_as_its_period_is_allowed() -> None:
    budget = Continuous(interval="100 ms", period="100 ms").begin().budget
    assert (budget.interval_us, budget.period_us) == (100_000, 100_000)


@pytest.mark.parametrize(
    ("rate", "per_second"),
    [
        ("7 per second", 7),
        ("3 per minute", 3 / 60),
        ("1.5 per hour", 1.5 / 3_600),
        (" 1  per  day ", 1 / 86_400),
        ("2 per week", 2 / 604_800),
        (0.25, 0.25),
        (3, 3),
    ],
)
def test_failures_are_taken_as_text_or_as_a_number_per_second(
    rate: str | float, per_second: float
) -> None:
    assert CostBenefit(failure_rate=rate).failures_per_second == pytest.approx(per_second)


def test_a_continuous_policy_is_described_by_all_it_was_given() -> None:
    nothing = dict.fromkeys(("q", "u", "interval_us", "period_us", "objective_us"))
    assert Continuous().describe() == {"policy": "continuous", **nothing}
    given = Continuous(q=1, u=2, interval="3 us", period="4 us").describe()
    assert given == {
        "policy": "continuous",
        "q": 1,
        "u": 2,
        "interval_us": 3,
        "period_us": 4,
        "objective_us": None,
    }
    assert Continuous.within("7 us").describe() == Continuous().describe() | {"objective_us": 7}
    assert NoCheckpoint().describe() == {"policy": "none"}


@pytest.mark.parametrize("policy", VARIANTS, ids=str)
def test_every_description_survives_being_logged(policy: Policy) -> None:
    text = json.dumps(policy.describe(), allow_nan=False)
    assert json.loads(text) == policy.describe()


def test_policies_with_other_values_have_other_descriptions() -> None:
    texts = [json.dumps(policy.describe(), sort_keys=True) for policy in VARIANTS]
    assert len(set(texts)) == len(VARIANTS)


def test_the_same_time_in_other_words_has_the_same_description() -> None:
    assert FullSnapshot("1 minute").describe() == FullSnapshot(timedelta(seconds=60)).describe()
    assert Continuous.within("1 s").describe() == Continuous.within("1000 ms").describe()
    assert CostBenefit("60 per minute").describe() == CostBenefit(1).describe()


@pytest.mark.parametrize("every", [1, 50, "10 seconds", timedelta(milliseconds=5)])
@pytest.mark.parametrize("asynchronous", [False, True])
def test_periodic_is_a_full_snapshot_by_another_name(every: Any, asynchronous: bool) -> None:
    periodic = Periodic(every, asynchronous)
    snapshot = FullSnapshot(every, asynchronous)
    assert isinstance(periodic, FullSnapshot)
    assert periodic.describe() == snapshot.describe()
    assert periodic.every_us == snapshot.every_us
    assert pickle.loads(pickle.dumps(periodic)) == periodic  # noqa: S301  (made here)
    assert str(periodic) == str(snapshot).replace("FullSnapshot", "Periodic")
    with pytest.raises(AttributeError):
        periodic.every = 3  # type: ignore[misc]


@pytest.mark.parametrize("kind", [FullSnapshot, Periodic])
def test_a_snapshot_is_refused_by_the_name_that_it_was_given(kind: type[FullSnapshot]) -> None:
    with pytest.raises(SettingError) as refused:
        kind(0)
    assert refused.value.where == f"{kind.__name__}(every=...)"
    with pytest.raises(SettingError) as refused:
        kind(1, asynchronous=2)  # type: ignore[arg-type]
    assert refused.value.where == f"{kind.__name__}(asynchronous=...)"


def test_who_checks_single_windows_gives_each_a_footprint_when_it_opens() -> None:
    writing = {type(policy) for policy in ONE_OF_EACH.values() if policy.writes_openings}
    assert writing == {Continuous, CostBenefit, SlowWindows}
    assert not Continuous.within("1 second").writes_openings
    assert not UpstreamBackup().writes_openings
    assert not NoCheckpoint().writes_openings


def test_equal_policies_are_equal_values() -> None:
    assert Continuous(q=5) == Continuous(q=5)
    assert Continuous(q=5) != Continuous(q=6)
    assert hash(Continuous(q=5, interval="1 ms", period="1 s")) == hash(
        Continuous(q=5, interval="1 ms", period="1 s")
    )
    assert len(set(VARIANTS)) == len(VARIANTS)
