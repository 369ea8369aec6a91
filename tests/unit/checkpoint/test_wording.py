"""Policies in words."""

from __future__ import annotations

import doctest
from typing import Any

import pytest

from tests.support.policies import VARIANTS
from trailmark.checkpoint import wording
from trailmark.checkpoint.chooser import Chooser
from trailmark.checkpoint.policy import (
    Continuous,
    CostBenefit,
    Delta,
    FullSnapshot,
    NoCheckpoint,
    Policy,
    SlowWindows,
    UpstreamBackup,
)


@pytest.mark.parametrize(
    ("policy", "title", "promise"),
    [
        (
            NoCheckpoint(),
            "none",
            "writes no state: replays all input since nothing was open, or since the log began",
        ),
        (
            Continuous.within("2 seconds", interval="5 ms", period="100 ms"),
            "continuous (interval 5 ms, objective 2 s, period 100 ms)",
            "recovers within 2 seconds",
        ),
        (
            Continuous(q=200_000, u=1),
            "continuous (q 200,000, u 1)",
            "reads at most 200,000 records of output and replays at most 1 tuple",
        ),
        (
            Continuous(u=0, interval="5 ms", period="100 ms"),
            "continuous (interval 5 ms, period 100 ms, u 0)",
            "replays at most 0 tuples, as far as the budget allows",
        ),
        (
            Continuous(),
            "continuous",
            "promises nothing: what is written once, when it opens, is not written again",
        ),
        (
            CostBenefit(failure_rate=2),
            "cost-benefit (failures_per_second 2.0, weight 1.0)",
            "promises no time: writes what is expected to save more recovery time than it costs",
        ),
        (
            SlowWindows("10 seconds", "20 seconds", shots=4),
            "slow windows (period 20 s, shots 4, threshold 10 s)",
            "replays the input of at most 50 seconds",
        ),
        (
            FullSnapshot(50),
            "full snapshot (every 50 batches)",
            "loads the last snapshot and replays at most 50 batches",
        ),
        (
            FullSnapshot("10 seconds", asynchronous=True),
            "full snapshot (asynchronous, every 10 s)",
            "loads the last snapshot and replays at most 20 seconds of input",
        ),
        (
            Delta(1, full_every=10),
            "delta (every 1 batch, full_every 10)",
            "replays at most 1 batch, and reads the output of at most 10 batches",
        ),
    ],
    ids=lambda each: each if isinstance(each, Policy) else "",
)
def test_a_policy_says_what_it_was_given_and_what_it_promises(
    policy: Policy, title: str, promise: str
) -> None:
    assert policy.title() == title
    assert policy.promise() == promise


def test_upstream_backup_promises_different_things_for_time_and_for_counts() -> None:
    promise = UpstreamBackup().promise()
    assert promise.startswith("writes no state: replays the input since the oldest open window of")
    assert "for windows of a count, all input" in promise


@pytest.mark.parametrize("policy", VARIANTS, ids=str)
def test_every_policy_promises_something_or_says_that_it_does_not(policy: Policy) -> None:
    assert policy.promise()
    assert policy.title().startswith(policy.describe()["policy"])


def test_policies_of_ones_own_promise_nothing() -> None:
    class Mine(Policy):
        def begin(self) -> Chooser:
            return Chooser()

        def describe(self) -> dict[str, Any]:
            return {"policy": "mine", "mood": "good", "left_out": None}

    assert Mine().title() == "mine (mood good)"
    assert Mine().promise() == ""


def test_examples_are_true() -> None:
    found = doctest.testmod(wording)
    assert (found.failed, found.attempted) == (0, 2)
