"""Several policies over the same stream, in turn, several times over.

Policies decide by the clock, so two runs of one policy would write footprints in different batches,
and no two batches could be compared. So only the first run of a policy reads the time. The others
hear what the first one heard, decide as it did, and do the same work in every batch. Whoever else
uses the machine only adds to the time of a batch: the fastest of its repetitions counts.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from bench.orders import aggregate, now_us
from bench.recover_aside import Recovered, recover_aside
from bench.workloads import Workload
from trailmark.checkpoint.account import work_of
from trailmark.checkpoint.policy import Policy
from trailmark.checkpoint.rates import Work
from trailmark.engine import Bucket, OperatorLogs
from trailmark.engine.report import BatchReport
from trailmark.log import LocalStorage
from trailmark.log.storage.protocol import Part

Floats = npt.NDArray[np.float64]
Counts = npt.NDArray[np.int64]

#: Batches that a policy gets before it is the next one's turn.
TURN = 8
#: Each repetition begins its turns elsewhere: the first batch of a turn finds cold caches.
_SHIFT = 3
#: Output that no recovery needs is removed after so many batches, as on Spark.
RETAIN_BATCHES = 100

Note = Callable[[str], None]


class RepeatedClock:
    """Tells the time that its policy has had, and later, as often as asked, what it has told.

    It stands still while it is others' turn, as if batches came one right after the other.
    """

    def __init__(self) -> None:
        self._told: list[float] = []
        self._next: Iterator[float] | None = None
        self._away_us = 0.0
        self._stopped_us = now_us()

    def __call__(self) -> float:
        if self._next is None:
            self._told.append(now_us() - self._away_us)
            return self._told[-1]
        return next(self._next)

    def go(self) -> None:
        self._away_us += now_us() - self._stopped_us

    def stop(self) -> None:
        self._stopped_us = now_us()

    def begin_again(self) -> None:
        self._next = iter(self._told)


class CountingStorage(LocalStorage):
    """Counts the bytes of everything but the input."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.sizes: list[int] = []

    def publish(self, path: str, parts: Sequence[Part], *, force_sync: bool = False) -> bool:
        if not path.startswith("in/"):
            self.sizes.append(sum(memoryview(part).nbytes for part in parts))
        return super().publish(path, parts, force_sync=force_sync)


class Beside(ThreadPoolExecutor):
    """A thread for what is done beside the batches, and the processor time it has taken."""

    def __init__(self) -> None:
        super().__init__(1)
        self._seconds = 0.0
        self._lock = Lock()

    def submit(self, work: Callable[..., Any], /, *given: Any, **named: Any) -> Future[Any]:
        def measured() -> Any:
            began = time.thread_time()
            try:
                return work(*given, **named)
            finally:
                with self._lock:
                    self._seconds += time.thread_time() - began

        return super().submit(measured)

    def take_seconds(self) -> float:
        """What it has taken since this was asked last."""
        with self._lock:
            seconds, self._seconds = self._seconds, 0.0
        return seconds

    def wait(self) -> None:
        """Waits until all of it is done."""
        super().submit(lambda: None).result()


@dataclass(slots=True)
class Measured:
    """What a policy did: a value for each batch, times for each repetition too.

    ``processor``: seconds that the process computed, which waiting for the disk does not add to.
    ``beside``: seconds that were computed beside the batches, to remove files that nobody needs any
    more. All policies but `NoCheckpoint` come to that, and to the same.
    """

    policy: Policy
    seconds: Floats
    processor: Floats
    beside: Floats
    bytes: Counts
    opened: Counts
    checked: Counts
    results: Counts
    predicted_us: Counts
    open_windows: Counts
    works: list[Work] = field(default_factory=list)
    recovered: Recovered | None = None

    @classmethod
    def empty(cls, policy: Policy, repetitions: int, batches: int) -> Measured:
        seconds, processor, beside = np.zeros((3, repetitions, batches))
        size, opened, checked, results, predicted, windows = np.zeros((6, batches), dtype=np.int64)
        return cls(
            policy,
            seconds,
            processor,
            beside,
            bytes=size,
            opened=opened,
            checked=checked,
            results=results,
            predicted_us=predicted,
            open_windows=windows,
        )

    @property
    def fastest(self) -> Floats:
        """Seconds per batch without what others added."""
        least: Floats = self.seconds.min(axis=0)
        return least

    def total(self, start: int) -> float:
        """Seconds from a batch on, with what was done beside. On one core that is at the expense of
        some batch, in every repetition perhaps of another one, and so of none of the fastest."""
        beside = self.beside[:, start:].sum(axis=1)
        return float(self.fastest[start:].sum() + beside.min())

    @property
    def footprints(self) -> Counts:
        return self.opened + self.checked


@dataclass(frozen=True, slots=True)
class Contest:
    """How long and how often policies run over a workload.

    ``recoveries``: after these batches the state is lost and recovered, so that a bucket knows how
    long that takes here. ``counted_from``: batches before that one do not count.
    """

    workload: Workload
    batches: int
    repetitions: int
    recoveries: tuple[int, ...] = ()
    counted_from: int = 24

    def run(self, policies: Mapping[str, Policy], root: Path, note: Note) -> dict[str, Measured]:
        runners = [
            _Runner(self, policy, root / str(i)) for i, policy in enumerate(policies.values())
        ]
        for repetition in range(self.repetitions):
            note(f"{self.workload.name}: {len(policies)} policies, repetition {repetition + 1}")
            with _places(runners, repetition):
                for first, last in self._turns(repetition):
                    rows = [self.workload.rows(batch) for batch in range(first, last)]
                    for runner in runners if repetition % 2 else reversed(runners):
                        runner.feed(first, rows)
        return dict(zip(policies, (runner.measured for runner in runners), strict=True))

    def _turns(self, repetition: int) -> Iterator[tuple[int, int]]:
        ends = [*range(TURN - repetition * _SHIFT % TURN, self.batches, TURN), self.batches]
        yield from zip([0, *ends[:-1]], ends, strict=True)


class _Runner:
    """One policy on its way through the stream."""

    def __init__(self, contest: Contest, policy: Policy, place: Path) -> None:
        self._contest = contest
        self._policy = policy
        self._place = place
        self._clock = RepeatedClock()
        self._repetition = 0
        self.measured = Measured.empty(policy, contest.repetitions, contest.batches)

    def begin(self, repetition: int) -> None:
        self._repetition = repetition
        self._storage = CountingStorage(self._place)
        self._beside = Beside()
        if repetition:
            self._clock.begin_again()
        self._open()

    def end(self) -> None:
        self._bucket.close()
        self._beside.shutdown()
        shutil.rmtree(self._place, ignore_errors=True)

    def feed(self, first: int, batches: list[pa.RecordBatch]) -> None:
        self._clock.go()
        for batch, rows in enumerate(batches, first):
            began, computed = time.perf_counter(), time.process_time()
            report = self._bucket.run(batch, rows)
            self._time(batch, time.perf_counter() - began, time.process_time() - computed)
            self._keep(report) if self._repetition == 0 else self._compare(report)
            if batch in self._contest.recoveries:
                self._bucket.close()
                self._open()
        self._clock.stop()
        self._beside.wait()  # or it would be at the expense of another policy
        self._take_beside(first + len(batches) - 1)

    def _time(self, batch: int, seconds: float, processor: float) -> None:
        self._take_beside(batch)
        self.measured.seconds[self._repetition, batch] = seconds
        self.measured.processor[self._repetition, batch] = processor

    def _take_beside(self, batch: int) -> None:
        self.measured.beside[self._repetition, batch] += self._beside.take_seconds()

    def _open(self) -> None:
        operator = aggregate()
        logs = OperatorLogs(self._storage, operator, buckets=1)
        self._bucket = Bucket(
            operator,
            logs,
            0,
            self._policy,
            None,
            self._clock,
            retain_batches=RETAIN_BATCHES,
            beside=self._beside,
        )

    def _keep(self, report: BatchReport) -> None:
        measured, batch = self.measured, report.batch
        sizes, self._storage.sizes = self._storage.sizes, []
        measured.bytes[batch] = sum(sizes)
        measured.opened[batch] = report.footprints_opened
        measured.checked[batch] = report.footprints_checked
        measured.results[batch] = report.results.num_rows
        measured.predicted_us[batch] = report.account.predicted_us
        measured.open_windows[batch] = report.account.open_windows
        measured.works.append(work_of(report.account, batch))

    def _compare(self, report: BatchReport) -> None:
        measured, batch = self.measured, report.batch
        written = (report.footprints_opened, report.footprints_checked)
        assert written == (measured.opened[batch], measured.checked[batch]), "it decides the same"
        start = self._contest.counted_from
        worst = start + int(np.argmax(measured.predicted_us[start:]))
        if self._repetition == 1 and batch == worst:
            measured.recovered = recover_aside(self._place, batch)


@contextmanager
def _places(runners: list[_Runner], repetition: int) -> Iterator[None]:
    """Logs for one repetition, removed afterwards whatever happens."""
    begun = []
    try:
        for runner in runners:
            runner.begin(repetition)
            begun.append(runner)
        yield
    finally:
        for runner in begun:
            runner.end()
