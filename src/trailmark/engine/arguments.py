"""Arguments that mean the same on Spark and in tests without it."""

from __future__ import annotations

from datetime import timedelta

from trailmark.checkpoint.policy import Continuous, Policy
from trailmark.errors import SettingError
from trailmark.log.names import MOST_BUCKETS


def asked_policy(
    checkpoint: Policy | None, recover_within: str | timedelta | None, *, default: Policy
) -> Policy:
    """The policy that is asked for, itself or by an objective."""
    if checkpoint is not None and recover_within is not None:
        raise SettingError(
            "Give either a policy or an objective.", where="checkpoint, recover_within"
        )
    if recover_within is not None:
        return Continuous.within(recover_within)
    if checkpoint is None:
        return default
    if not isinstance(checkpoint, Policy):
        raise SettingError(
            f"checkpoint must be a policy, got {checkpoint!r}.",
            where="checkpoint",
            fix="For example tm.Continuous(q=200_000), or recover_within='2 seconds'.",
        )
    return checkpoint


def check_buckets(buckets: int) -> None:
    """Refuses what is no number of buckets."""
    is_whole = isinstance(buckets, int) and not isinstance(buckets, bool)
    if not (is_whole and 1 <= buckets <= MOST_BUCKETS):
        raise SettingError(
            f"buckets must be a number from 1 to {MOST_BUCKETS:,}, got {buckets!r}.",
            where="buckets",
        )
