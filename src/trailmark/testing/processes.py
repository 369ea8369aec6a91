"""The processes of a query, one after another: each has nothing but the disk of the one before."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Executor, Future
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

from trailmark.checkpoint.policy import Policy
from trailmark.engine import BatchReport, Bucket, OperatorLogs
from trailmark.engine.tentative import Told
from trailmark.errors import TrailmarkError
from trailmark.log import Clock, MonotonicClock, wall_clock_us
from trailmark.operators.protocol import AnyOperator
from trailmark.records import Loss
from trailmark.settings import LogSettings
from trailmark.state.cache import StateCache
from trailmark.testing.disk import Crashed, SimulatedDisk

T = TypeVar("T")


class MakesOperators(Protocol):
    """What a query computes."""

    def operator(self) -> AnyOperator:
        """A new one, as a new process has it."""


class StepClock:
    """Every look at it takes some microseconds: budgets run out, and do so every time alike."""

    def __init__(self, step_us: float = 7.0) -> None:
        self._now = 0.0
        self._step = step_us

    def __call__(self) -> float:
        self._now += self._step
        return self._now


class AtOnce(Executor):
    """Does what is asked of it before it goes on, so that it comes at the same point every time."""

    def submit(self, work: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]:
        done: Future[T] = Future()
        try:
            done.set_result(work(*args, **kwargs))
        except TrailmarkError as error:  # what the process may survive; a crash it does not
            done.set_exception(error)
        return done


@dataclass
class Processes:
    """All buckets of an operator, in one process after another.

    Parameters
    ----------
    case
        What is computed.
    disk
        What the processes have in common.
    policy, buckets, settings, retain_batches, loss
        As the engine takes them.
    clock, wall
        Measure work, and tell the time.
    beside
        Who keeps the logs short; None starts a thread for it.
    """

    case: MakesOperators
    disk: SimulatedDisk
    policy: Policy
    buckets: int = 1
    settings: LogSettings = field(default_factory=LogSettings)
    retain_batches: int | None = None
    clock: MonotonicClock = field(default_factory=StepClock)
    wall: Clock = wall_clock_us
    beside: Executor | None = None
    loss: Loss = Loss.NONE

    def __post_init__(self) -> None:
        self._open: list[Bucket] | None = None
        self._operator = self.case.operator()

    def logs(self) -> OperatorLogs:
        """The logs as a new process finds them."""
        return self.logs_of(self._operator)

    def logs_of(self, operator: AnyOperator) -> OperatorLogs:
        return OperatorLogs(
            self.disk.storage(self.settings.durability),
            operator,
            buckets=self.buckets,
            query_id="query",
            settings=self.settings,
            clock=self.wall,
            told=self.told_of(operator),
        )

    def told_of(self, operator: AnyOperator) -> Told | None:
        """Who knows of its inputs what does not come with their rows; None if nobody does."""
        return None

    def cache(self) -> StateCache | None:
        """Where a process leaves its state for the next; None if it is lost with it."""
        return None

    def open(self) -> list[Bucket]:
        """The buckets of the process that runs, or of a new one."""
        if self._open is None:
            operator = self.case.operator()  # a new one, as all that a process has in memory
            logs, cache = self.logs_of(operator), self.cache()
            self._open = [
                Bucket(
                    operator,
                    logs,
                    number,
                    self.policy,
                    cache,
                    self.clock,
                    retain_batches=self.retain_batches,
                    beside=self.beside,
                    loss=self.loss,
                )
                for number in range(self.buckets)
            ]
        return self._open

    def run(self, batch: int, parts: Sequence[Any]) -> list[BatchReport]:
        """Runs a batch, given the rows of each bucket."""
        return [bucket.run(batch, rows) for bucket, rows in zip(self.open(), parts, strict=True)]

    def stop(self) -> None:
        """The process ends: whatever it had in memory is gone."""
        for bucket in self._open or ():
            with suppress(Crashed):  # of a snapshot that was being written when the disk stopped
                bucket.close()
        self._open = None
