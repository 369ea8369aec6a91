"""Policies as values: when windows get footprints. They never affect results, only costs.

How each of them chooses is in a module of its own: `continuous`, `rounds`, `cost_benefit`,
`slow_windows`, `snapshots`, `incremental`.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from datetime import timedelta
from typing import Any

from trailmark.checkpoint.arguments import (
    budget_us,
    check_budget,
    check_every,
    describe_budget,
    describe_every,
    failures,
    is_count,
    is_number,
    microseconds,
    read_failures,
)
from trailmark.checkpoint.budget import Budget
from trailmark.checkpoint.chooser import Chooser
from trailmark.checkpoint.continuous import Targets
from trailmark.checkpoint.cost_benefit import Benefits
from trailmark.checkpoint.incremental import DirtyGroups
from trailmark.checkpoint.rounds import Rounds
from trailmark.checkpoint.slow_windows import SlowShots
from trailmark.checkpoint.snapshots import Deltas, LastTime, Snapshots
from trailmark.checkpoint.wording import policy_promise, policy_title
from trailmark.errors import SettingError
from trailmark.settings import parse_duration
from trailmark.values import dataclass


class Policy(ABC):
    """What the engine asks of a policy."""

    __slots__ = ()

    @property
    def writes_openings(self) -> bool:
        """Whether a window gets a footprint in the batch that opens it."""
        return False

    @property
    def marks_openings(self) -> bool:
        """Whether the table has the batch that a window opened in where footprints have theirs, if
        windows can be rebuilt from that."""
        return False

    @property
    def lists_changed(self) -> bool:
        """Whether it has to know which windows a batch has changed."""
        return False

    @property
    def mixes_ages(self) -> bool:
        """Whether a recovery begins with footprints of different ages, and brings each window up to
        date by itself."""
        return False

    @property
    def writes_groups_of(self) -> int | None:
        """How many tuples the pieces hold that it writes, if it is only for groups of tuples."""
        return None

    @abstractmethod
    def begin(self) -> Chooser:
        """The policy at work in a bucket that it knows nothing of yet."""

    @abstractmethod
    def describe(self) -> dict[str, Any]:
        """All that it was given, as plain values: equal for policies that do the same."""

    def title(self) -> str:
        """Its name and what it was given, in words."""
        return policy_title(self.describe())

    def promise(self) -> str:
        """What a recovery of a bucket can rely on under it, or cannot, in words."""
        return policy_promise(self.describe())


class Repeated(Policy):
    """A policy that has nothing to do but every so often."""

    __slots__ = ()

    every: int | str | timedelta

    @property
    def every_us(self) -> int | None:
        """The time between two times; None if batches are counted."""
        return None if isinstance(self.every, int) else microseconds(self.every, "every")


@dataclass(frozen=True, slots=True)
class NoCheckpoint(Policy):
    """Writes no footprints. A recovery replays the whole input since the log began, or since no
    window was open; the input log is kept for that."""

    def begin(self) -> Chooser:
        return Chooser()

    def describe(self) -> dict[str, Any]:
        return {"policy": "none"}


@dataclass(frozen=True, slots=True)
class UpstreamBackup(Policy):
    """Writes no state either, and keeps no more input than the open windows are made of.

    A recovery replays the input since the oldest open window opened. That works for windows of
    time. Where a window begins in a count of tuples follows from the windows before it, so for
    these a recovery begins where no window was open, as under `NoCheckpoint`.
    """

    @property
    def marks_openings(self) -> bool:
        return True

    def begin(self) -> Chooser:
        return Chooser()

    def describe(self) -> dict[str, Any]:
        return {"policy": "upstream backup"}


@dataclass(frozen=True, slots=True)
class Continuous(Policy):
    """Continuous eventual checkpointing with targets and a budget.

    Every window that outlives the batch that opens it gets a footprint in it (with an objective: in
    rounds). Beyond that, the windows with the oldest footprints are checked again while a target is
    missed and the budget lasts. Targets and budget hold for each bucket.

    Parameters
    ----------
    q
        Target for the extent: records of the output log that a recovery reads.
    u
        Target for the replay: input tuples that a recovery reads.
    interval, period
        Budget: at most ``interval`` of checking in every ``period`` of time. Without them there is
        no limit.
    objective
        Instead of ``q`` and ``u``: how long a recovery may take; see :meth:`within`.

    Examples
    --------
    >>> Continuous(q=200_000, u=500_000, interval="5 ms", period="100 ms").describe()["q"]
    200000
    """

    q: int | None = None
    u: int | None = None
    interval: str | timedelta | None = None
    period: str | timedelta | None = None
    objective: str | timedelta | None = None

    @classmethod
    def within(
        cls,
        objective: str | timedelta,
        *,
        interval: str | timedelta | None = None,
        period: str | timedelta | None = None,
    ) -> Continuous:
        """Keeps the predicted recovery time of a bucket within an objective, with as few
        footprints as that takes.

        Windows that open and close between two rounds of footprints need none. Rounds are as far
        apart as the objective allows, by the rates that the bucket has measured.

        Examples
        --------
        >>> Continuous.within("2 seconds").describe()["objective_us"]
        2000000
        """
        return cls(interval=interval, period=period, objective=objective)

    def __post_init__(self) -> None:
        if self.objective is not None and (self.q is not None or self.u is not None):
            raise SettingError(
                "Give either an objective or targets.", where="Continuous(q=, u=, objective=)"
            )
        if self.objective is not None and not parse_duration(self.objective, "objective"):
            raise SettingError(
                f"An objective of no time cannot be met, got {self.objective!r}.",
                where="Continuous(objective=...)",
            )
        for name, value in (("q", self.q), ("u", self.u)):
            if value is not None and not is_count(value):
                raise SettingError(
                    f"{name} must be a whole number of records or tuples, got {value!r}.",
                    where=f"Continuous({name}=...)",
                )
        check_budget(self.interval, self.period, "Continuous")

    @property
    def objective_us(self) -> int:
        return 0 if self.objective is None else microseconds(self.objective, "objective")

    @property
    def writes_openings(self) -> bool:
        return self.objective is None

    @property
    def mixes_ages(self) -> bool:
        return True

    def begin(self) -> Targets | Rounds:
        budget = Budget.of(*budget_us(self.interval, self.period))
        return Targets(self, budget) if self.objective is None else Rounds(self, budget)

    def describe(self) -> dict[str, Any]:
        return {
            "policy": "continuous",
            "q": self.q,
            "u": self.u,
            **describe_budget(self.interval, self.period),
            "objective_us": self.objective_us or None,
        }


@dataclass(frozen=True, slots=True)
class CostBenefit(Policy):
    """Checks a window when the recovery time it is expected to save outweighs writing it.

    Every window that outlives the batch that opens it gets a footprint in it. After a batch, the
    oldest footprints are renewed if that saves more than it costs::

        failure_rate x (how long the saving lasts) x (time saved in a recovery) x weight
            >  footprints x (time to write one)

    Both sides are in microseconds and measured. How long the saving lasts is taken to be as long as
    the footprints have lasted: who has been open for a minute is expected to stay for another.

    Parameters
    ----------
    failure_rate
        How often a recovery is expected: ``"1 per day"``, or a number per second.
    weight
        How much worse a second of recovery is than a second of work.
    interval, period
        Budget, as in `Continuous`.

    Examples
    --------
    >>> CostBenefit(failure_rate="2 per hour").failures_per_second
    0.0005555555555555556
    """

    failure_rate: str | float
    weight: float = 1.0
    interval: str | timedelta | None = None
    period: str | timedelta | None = None

    def __post_init__(self) -> None:
        if not 0 < read_failures(self.failure_rate) < math.inf:
            raise SettingError(
                f"failure_rate must be above zero and finite, got {self.failure_rate!r}.",
                where="CostBenefit(failure_rate=...)",
                fix='For example failure_rate="1 per day"; without failures use NoCheckpoint().',
            )
        if not is_number(self.weight) or not 0 < self.weight < math.inf:
            raise SettingError(
                f"weight must be a number above zero and finite, got {self.weight!r}.",
                where="CostBenefit(weight=...)",
            )
        check_budget(self.interval, self.period, "CostBenefit")

    @property
    def failures_per_second(self) -> float:
        return failures(self.failure_rate)

    @property
    def writes_openings(self) -> bool:
        return True

    @property
    def mixes_ages(self) -> bool:
        return True

    def begin(self) -> Benefits:
        return Benefits(self, Budget.of(*budget_us(self.interval, self.period)))

    def describe(self) -> dict[str, Any]:
        return {
            "policy": "cost-benefit",
            "failures_per_second": self.failures_per_second,
            "weight": self.weight,
            **describe_budget(self.interval, self.period),
        }


@dataclass(frozen=True, slots=True)
class SlowWindows(Policy):
    """Checks the windows that stay open, each once in a period, a few at a time.

    Every window that outlives the batch that opens it gets a footprint in it. A window that has
    been open for longer than ``threshold`` is slow. In every ``period`` all slow windows are
    checked once, in so many ``shots`` evenly spread over it, oldest footprint first.

    Examples
    --------
    >>> SlowWindows("10 seconds", "20 seconds", shots=4).describe()["shots"]
    4
    """

    threshold: str | timedelta
    period: str | timedelta
    shots: int = 1

    def __post_init__(self) -> None:
        period = parse_duration(self.period, "period")
        if not period:
            raise SettingError(
                f"A period must be longer than zero, got {self.period!r}.",
                where="SlowWindows(period=...)",
            )
        if not is_count(self.shots) or not 1 <= self.shots <= period:
            raise SettingError(
                f"shots must be a whole number from 1 on, got {self.shots!r}.",
                where="SlowWindows(shots=...)",
            )
        parse_duration(self.threshold, "threshold")

    @property
    def threshold_us(self) -> int:
        return microseconds(self.threshold, "threshold")

    @property
    def period_us(self) -> int:
        return microseconds(self.period, "period")

    @property
    def writes_openings(self) -> bool:
        return True

    @property
    def mixes_ages(self) -> bool:
        return True

    def begin(self) -> SlowShots:
        return SlowShots(self)

    def describe(self) -> dict[str, Any]:
        return {
            "policy": "slow windows",
            "threshold_us": self.threshold_us,
            "period_us": self.period_us,
            "shots": self.shots,
        }


@dataclass(frozen=True, slots=True)
class FullSnapshot(Repeated):
    """Writes all open windows at once, every so often. A recovery begins at the last snapshot.

    Parameters
    ----------
    every
        A number of batches, or a time such as ``"10 seconds"``.
    asynchronous
        False: the batch waits until the snapshot is in the log. True: it waits for a copy only,
        and the copy is written while later batches run.
    """

    every: int | str | timedelta
    asynchronous: bool = False

    def __post_init__(self) -> None:
        name = type(self).__name__
        check_every(self.every, name)
        if not isinstance(self.asynchronous, bool):
            raise SettingError(
                f"asynchronous must be True or False, got {self.asynchronous!r}.",
                where=f"{name}(asynchronous=...)",
            )

    def begin(self) -> Snapshots:
        return Snapshots(self, LastTime())

    def describe(self) -> dict[str, Any]:
        return {
            "policy": "full snapshot",
            **describe_every(self.every),
            "asynchronous": self.asynchronous,
        }


class Periodic(FullSnapshot):
    """Writes the whole state every so often: `FullSnapshot` by the name that languages for streams
    give it.

    There a checkpoint is a setting of an operator, such as "every 10 seconds", whatever its state
    is made of. It is the same policy: logs of the one go on under the other.

    Examples
    --------
    >>> Periodic("10 seconds").describe() == FullSnapshot("10 seconds").describe()
    True
    """

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Delta(Repeated):
    """Writes the windows that have changed since the last time, every so often.

    A recovery begins at the last delta, and reads as far back as the oldest footprint of a window
    that is still open.

    Parameters
    ----------
    every
        A number of batches, or a time such as ``"10 seconds"``.
    full_every
        Every so many deltas all windows are written, so that the chain has an end.
    """

    every: int | str | timedelta
    full_every: int = 10

    def __post_init__(self) -> None:
        check_every(self.every, "Delta")
        if not is_count(self.full_every) or not self.full_every:
            raise SettingError(
                f"full_every must be a whole number from 1 on, got {self.full_every!r}.",
                where="Delta(full_every=...)",
            )

    @property
    def lists_changed(self) -> bool:
        return True

    def begin(self) -> Deltas:
        return Deltas(self, LastTime())

    def describe(self) -> dict[str, Any]:
        return {"policy": "delta", **describe_every(self.every), "full_every": self.full_every}


@dataclass(frozen=True, slots=True)
class Incremental(Repeated):
    """Writes the windows of a join a group of tuples at a time, every so often: those groups that
    have got tuples since the last time.

    For :func:`trailmark.join` with ``windows=``. Each window is a ring of groups, which tuples fill
    one after another. Groups are cut so when the logs begin, so both the policy and its
    ``group_size`` stay as long as these do.

    Parameters
    ----------
    every
        A number of batches, or a time such as ``"1 second"``.
    group_size
        How many tuples a group holds. In windows of one key, those of keys that get few are
        smaller, down to a sixteenth.

    Examples
    --------
    >>> Incremental("1 second", group_size=512).describe()["group_size"]
    512
    """

    every: int | str | timedelta
    group_size: int = 1024

    def __post_init__(self) -> None:
        check_every(self.every, "Incremental")
        if not is_count(self.group_size) or not self.group_size:
            raise SettingError(
                f"group_size must be a whole number of tuples from 1 on, got {self.group_size!r}.",
                where="Incremental(group_size=...)",
            )

    @property
    def lists_changed(self) -> bool:
        return True

    @property
    def writes_groups_of(self) -> int:
        return self.group_size

    def begin(self) -> DirtyGroups:
        return DirtyGroups(self, LastTime())

    def describe(self) -> dict[str, Any]:
        return {
            "policy": "incremental",
            **describe_every(self.every),
            "group_size": self.group_size,
        }


def marked_openings(description: object) -> bool:
    """The same of a policy that only its description is left of."""
    return description == UpstreamBackup().describe()
