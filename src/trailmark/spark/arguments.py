"""The arguments that every operator takes, by the same names and with the same refusals."""

from __future__ import annotations

import os
from dataclasses import replace
from datetime import timedelta
from typing import Literal, cast

from pyspark.sql import DataFrame

from trailmark.checkpoint.policy import Continuous, Policy
from trailmark.engine.arguments import asked_policy, check_buckets
from trailmark.engine.losses import LossText, asked_loss
from trailmark.errors import SettingError
from trailmark.records import Loss
from trailmark.settings import Durability, LogSettings
from trailmark.spark.connect import is_connect, refused
from trailmark.spark.workers import check_workers
from trailmark.values import dataclass

#: What is promised when nothing is asked for.
_DEFAULT_OBJECTIVE = "5 seconds"


@dataclass(frozen=True, slots=True)
class CommonArguments:
    """How an operator is to keep its state and its logs, whatever it computes.

    ``path`` is as it was given: what it stands for depends on the DataFrame. ``policy`` is None for
    an operator without logs. ``buckets`` is None where the choice is left to Trailmark.
    ``numbered`` asks for results that are the same on every replica.
    """

    path: str | os.PathLike[str]
    policy: Policy | None
    buckets: int | None
    retain_batches: int | None
    log_settings: LogSettings
    cache_root: str | None
    loss: Loss = Loss.NONE
    numbered: bool = False

    @classmethod
    def checked(
        cls,
        path: str | os.PathLike[str] | None,
        *,
        checkpoint: Policy | None,
        recover_within: str | timedelta | None,
        buckets: int | None,
        retain_batches: int | None,
        durability: Durability | Literal["synced", "unsynced"],
        cache_dir: str | os.PathLike[str] | None,
        loss: LossText = "none",
        numbered: bool = False,
        may_be_unlogged: bool = False,
    ) -> CommonArguments:
        """The arguments as users give them; wrong ones are refused by name.

        With ``may_be_unlogged`` an operator of which neither a policy nor an objective is given has
        no logs.
        """
        is_unlogged = may_be_unlogged and checkpoint is None and recover_within is None
        default = Continuous.within(_DEFAULT_OBJECTIVE)
        policy = None if is_unlogged else asked_policy(checkpoint, recover_within, default=default)
        if path is None and policy is not None:
            raise SettingError(
                "The operator needs a path for its logs.",
                where="path",
                fix="For example path='/data/counts', or checkpoint=None for an operator without "
                "logs, whose state is lost when the query stops.",
            )
        accepted = asked_loss(loss)
        if policy is None and accepted is not Loss.NONE:
            raise SettingError(
                "An operator without logs loses all of its state when the query stops, and nobody "
                "could count it.",
                where="loss",
                fix="Give a policy such as checkpoint=tm.Periodic('10 seconds'), or leave loss "
                "out.",
            )
        _check_retained(retain_batches)
        if buckets is not None:
            check_buckets(buckets)
        return cls(
            "" if path is None else path,
            policy,
            buckets,
            retain_batches,
            LogSettings(durability=cast(Durability, durability)),  # it takes the text, too
            None if cache_dir is None else os.path.abspath(os.path.expanduser(cache_dir)),
            accepted,
            _checked_numbered(numbered, policy, accepted, buckets),
        )

    def in_one_bucket(self, why: str, fix: str) -> CommonArguments:
        """The same for an operator that all rows have to come to; more buckets are refused."""
        if self.buckets not in (None, 1):
            raise SettingError(
                f"{why}, and so in one bucket; {self.buckets} are asked for.",
                where="buckets",
                fix=f"Leave buckets out, or {fix}",
            )
        return replace(self, buckets=1)


def check_dataframe(df: DataFrame, argument: str = "df") -> None:
    """Refuses what no operator can work on, and sessions whose workers could not."""
    _check_is_dataframe(df, argument)
    check_workers(df.sparkSession)


def check_classic(df: DataFrame, what: str, argument: str = "df") -> None:
    """Refuses what is no DataFrame of this driver's; ``what`` looks into the plans of these."""
    _check_is_dataframe(df, argument)
    if is_connect(df.sparkSession):
        raise refused(what, "it looks into Spark's plans, which stay on the server", argument)


def _check_is_dataframe(df: DataFrame, argument: str) -> None:
    if not isinstance(df, DataFrame):
        raise SettingError(
            f"{argument} must be a DataFrame, got {type(df).__name__}.", where=argument
        )


def _checked_numbered(
    numbered: bool, policy: Policy | None, loss: Loss, buckets: int | None
) -> bool:
    """Refuses what could not be the same on every replica."""
    if not isinstance(numbered, bool):
        raise SettingError(f"numbered must be True or False, got {numbered!r}.", where="numbered")
    if not numbered:
        return False
    if policy is None:
        raise SettingError(
            "Numbers of results are kept in the logs, and the operator has none.",
            where="numbered",
            fix="Give a path and recover_within or checkpoint.",
        )
    if loss is not Loss.NONE:
        raise SettingError(
            "With loss='bounded' results depend on when the query was killed, so those of replicas "
            "would differ.",
            where="numbered, loss",
            fix="Leave one of them out.",
        )
    if buckets is None:
        raise SettingError(
            "Results are numbered in each bucket, and how many there are would depend on the cores "
            "that a replica has.",
            where="buckets",
            fix="Give all replicas the same number, for example buckets=4.",
        )
    return True


def _check_retained(batches: int | None) -> None:
    is_whole = isinstance(batches, int) and not isinstance(batches, bool)
    if batches is not None and (not is_whole or batches < 1):
        raise SettingError(
            f"retain_batches must be a number of batches or None, got {batches!r}.",
            where="retain_batches",
        )
