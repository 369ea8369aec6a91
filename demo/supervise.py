"""Starts the query as a process of its own, follows it, and kills it without warning."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from build_support.java import find_java
from demo.failure import DemoFailure
from demo.places import Places
from trailmark.engine.progress import Recovery

_PROJECT = Path(__file__).parents[1]
_LOOK_EVERY_S = 0.05
#: Lines of the query's own output that are shown when it fails.
_LAST_LINES = 15


@dataclass(frozen=True, slots=True)
class Batch:
    """A batch that the query has committed, as it told."""

    time: float
    batch: int
    tuples: int
    results: int
    open_windows: int
    predicted_us: int
    recoveries: tuple[Recovery, ...]
    #: Since the batch before, or since the query was started.
    took_s: float

    @property
    def tuples_per_s(self) -> float:
        return self.tuples / self.took_s


class Run:
    """One life of the query: from the start of its process to its end or its death.

    The process leads a session of its own, so that everything it starts, and what these start in
    turn, can be found again.
    """

    def __init__(self, places: Places) -> None:
        self.batches: list[Batch] = []
        self.started_at = time.time()
        self.ready_at: float | None = None
        self.killed_at: float | None = None
        self._output = places.root / "output.txt"
        self._lines = _Lines(places.progress)
        scratch = places.root / "spark"
        scratch.mkdir(parents=True, exist_ok=True)
        with self._output.open("w") as output:
            self._process = subprocess.Popen(
                _command(places),
                cwd=_PROJECT,
                env=_environment(scratch),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def follow(self) -> Iterator[Batch]:
        """Batches as they are committed, until the query has ended; raises if it has failed."""
        while True:
            has_ended = self.has_ended
            for line in self._lines.new():
                if line["kind"] == "started":
                    self.ready_at = line["time"]
                else:
                    self.batches.append(self._batch(line))
                    yield self.batches[-1]
            if has_ended:
                break
            time.sleep(_LOOK_EVERY_S)
        if self._process.returncode:
            last = self._output.read_text(errors="replace").splitlines()[-_LAST_LINES:]
            what = "The query failed. The end of what it said (use --keep to keep all of it):"
            raise DemoFailure("\n    ".join([what, *last]))

    @property
    def has_ended(self) -> bool:
        return self._process.poll() is not None

    def kill(self) -> int:
        """`kill -9` for the driver, its JVM and its workers; how many processes there were."""
        self.killed_at = time.time()
        killed: set[int] = set()
        while alive := _session_members(self._process.pid):
            for pid in alive - killed:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            killed |= alive
            time.sleep(_LOOK_EVERY_S)
        self._process.wait()
        return len(killed)

    def _batch(self, line: dict[str, Any]) -> Batch:
        recoveries = tuple(Recovery(**recovery) for recovery in line["recoveries"])
        names = ("time", "batch", "tuples", "results", "open_windows", "predicted_us")
        since = self.batches[-1].time if self.batches else self.ready_at
        took_s = max(line["time"] - (since or self.started_at), 1e-6)
        return Batch(**{name: line[name] for name in names}, recoveries=recoveries, took_s=took_s)


@contextmanager
def running(places: Places) -> Iterator[Run]:
    """A run that is dead afterwards, whatever happens."""
    run = Run(places)
    try:
        yield run
    finally:
        run.kill()


class _Lines:
    """What is added to a file of JSON lines from now on; a line that is not finished waits."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
        if (text := path.read_text()) and not text.endswith("\n"):
            path.write_text(text + "\n")  # whoever wrote the line was killed in the middle of it
        self._path = path
        self._read = path.stat().st_size

    def new(self) -> list[dict[str, Any]]:
        with self._path.open("rb") as file:
            file.seek(self._read)
            whole, newline, _ = file.read().rpartition(b"\n")
        self._read += len(whole) + len(newline)
        return [json.loads(line) for line in whole.splitlines()]


def _command(places: Places) -> list[str]:
    return [
        *(sys.executable, "-m", "demo.query"),
        *("--orders", str(places.orders)),
        *("--root", str(places.root)),
        *("--cache", str(places.cache)),
        *("--recover-within", places.recover_within),
    ]


def _environment(scratch: Path) -> dict[str, str]:
    """Ours, with the Java to use and this Python for Spark's workers."""
    java = find_java()
    if java is None:
        raise DemoFailure("There is no Java 17 or later. Run `make demo`, which gets one.")
    return os.environ | {
        "JAVA_HOME": str(java),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PYSPARK_PYTHON": sys.executable,
        "TMPDIR": str(scratch),
    }


def _session_members(leader: int) -> set[int]:
    """Processes of the session that are still alive.

    Spark's workers leave the process group of the driver, but not its session.
    """
    pids = {int(entry.name) for entry in Path("/proc").glob("[0-9]*")}
    return {pid for pid in pids if _session(pid) == leader}


def _session(pid: int) -> int | None:
    """None if the process is dead, whether or not anybody has asked how it ended."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except OSError:
        return None
    state, _, _, session, *_ = text.rpartition(")")[2].split()  # its name may hold anything
    return None if state in "ZX" else int(session)
