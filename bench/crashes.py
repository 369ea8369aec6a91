"""Kills a process at random moments, again and again, and reads from the logs how it came back."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from bench.contest import Note
from bench.orders import aggregate
from bench.workloads import Workload
from trailmark.engine import OperatorLogs
from trailmark.log import LocalStorage
from trailmark.records import FrameKind

_PROJECT = Path(__file__).parents[1]
_SHARED = Path("/dev/shm")
#: A process works for so many seconds before it is killed: at least, on average beyond, at most.
_LEAST_S, _MEAN_S, _MOST_S = 0.2, 0.9, 4.0


class WrongResults(Exception):
    """The logs have other results than the stream gives."""


@dataclass(frozen=True, slots=True)
class Recovery:
    """What a recovery took and had been predicted to take, in seconds."""

    workload: str
    batch: int
    took_s: float
    predicted_s: float
    load_s: float
    replay_s: float
    segments: int
    replay_tuples: int


@dataclass(frozen=True, slots=True)
class Crashes:
    """All crashes of a workload: recoveries that came to their end, and what was computed."""

    workload: str
    kills: int
    batches: int
    results: int
    recoveries: tuple[Recovery, ...]

    def describe(self) -> dict[str, Any]:
        described = asdict(self)
        for recovery in described["recoveries"]:
            for name in ("took_s", "predicted_s", "load_s", "replay_s"):
                recovery[name] = round(recovery[name], 6)
        return described


def crash_often(
    workload: Workload, objective: str, kills: int, rng: np.random.Generator, root: Path, note: Note
) -> Crashes:
    """Starts the workload so many times and kills it; the last start ends by itself.

    Each start finds the logs and nothing else: the cached state is gone, as it is with a host.
    """
    place = root / f"crashes-{workload.name}"
    delays = _LEAST_S + np.minimum(rng.exponential(_MEAN_S, kills), _MOST_S - _LEAST_S)
    with _directory_for_state() as cache:
        command = [sys.executable, "-m", "bench.crash_child", str(place), str(cache)]
        command += [workload.name, objective]
        for number, delay in enumerate(delays.tolist(), 1):
            with _started([*command, "-1"]):
                time.sleep(delay)
            shutil.rmtree(cache, ignore_errors=True)
            if number % 10 == 0:
                note(f"{workload.name}: {number} crashes")
        with _started([*command, "2"]) as child:
            child.wait()
    crashes = _read_logs(workload, kills, place)
    shutil.rmtree(place)
    expected = workload.results(crashes.batches)
    if crashes.results != expected:
        raise WrongResults(
            f"{workload.name}: {crashes.results} results in the log after {crashes.batches} "
            f"batches, and {expected} expected."
        )
    return crashes


@contextmanager
def _started(command: list[str]) -> Iterator[subprocess.Popen[str]]:
    """A process that is at work, and dead afterwards whatever happens."""
    with subprocess.Popen(
        command,
        cwd=_PROJECT,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,  # Ctrl-C is for us; the child is killed
    ) as child:
        try:
            assert child.stdout is not None
            if child.stdout.readline().strip() != "ready":
                raise ChildProcessError(f"{' '.join(command[1:3])} did not start.")
            yield child
            if child.poll():
                raise ChildProcessError(f"{' '.join(command[1:3])} failed by itself.")
        finally:
            child.kill()


@contextmanager
def _directory_for_state() -> Iterator[Path]:
    base = _SHARED if os.access(_SHARED, os.W_OK) else None
    with tempfile.TemporaryDirectory(prefix="trailmark-bench-", dir=base) as folder:
        yield Path(folder) / "state"


def _read_logs(workload: Workload, kills: int, place: Path) -> Crashes:
    """Everything is in the footers: what a batch gave, and what a recovery before it took."""
    output = OperatorLogs(LocalStorage(place), aggregate(), buckets=1).output(0)
    results, recoveries, batches = 0, [], output.batches()
    for batch in batches:
        footer, _ = output.read_footer(batch)
        results += footer.rows.get(FrameKind.RESULTS, 0)
        if "recovery" in footer.attributes:
            recoveries.append(_recovery(workload.name, batch, footer.attributes["recovery"]))
    assert batches == list(range(len(batches))), "nothing was removed"
    return Crashes(workload.name, kills, len(batches), results, tuple(recoveries))


def _recovery(workload: str, batch: int, found: dict[str, Any]) -> Recovery:
    parts = [found[name] / 1e6 for name in ("open_us", "plan_us", "load_us", "replay_us")]
    return Recovery(
        workload,
        batch,
        took_s=sum(parts),
        predicted_s=found["predicted_us"] / 1e6,
        load_s=parts[1] + parts[2],
        replay_s=parts[3],
        segments=found["segments_read"],
        replay_tuples=found["replay_tuples"],
    )
