"""Runs a peer in a session of its own, watches it, and kills it.

Memory is that of all processes of the session: a JVM's workers put themselves into a process group
of their own, but they cannot leave the session without meaning to.
"""

from __future__ import annotations

import json
import os
import queue
import shutil
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, TextIO

from bench.peers.environments import PROJECT
from bench.peers.peer import JOBS, TRAILMARK, Peer

#: Every JVM gets as much.
HEAP_GIB = 4
#: Seconds between two looks at memory and files.
_SAMPLE_S = 0.25
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_PROC = Path("/proc")
_ROOT = Path(__file__).parents[2]


class JobFailed(Exception):
    """A job ended, or took too long, before it had said what was waited for."""


@dataclass(frozen=True, slots=True)
class Event:
    """What a job says. What is about a batch only comes from engines that have batches, bytes of
    checkpoints only from those that know them."""

    event: str
    at: float
    rows: int = 0
    results: int = 0
    batch: int = -1
    batch_rows: int = 0
    batch_results: int = 0
    batch_s: float = 0.0
    checkpoint_bytes: int = 0


def read_events(lines: Iterable[str]) -> Iterator[Event]:
    """The events among the lines of a job; what its engine prints beside them is left out."""
    for line in lines:
        if line.startswith('{"event":'):
            said = json.loads(line)
            yield Event(**{name: said[name] for name in Event.__slots__ if name in said})


# Processes.


def processes(session: int) -> list[int]:
    """The processes of a session that are there now."""
    found = []
    for entry in _PROC.iterdir():
        if entry.name.isdigit() and _session_of(entry) == session:
            found.append(int(entry.name))
    return found


def _session_of(process: Path) -> int | None:
    text = _read(process / "stat")
    # The name of the program is in brackets and may hold anything; fields are counted after it.
    return int(text.rpartition(")")[2].split()[3]) if text else None


def resident_bytes(process: int) -> int:
    """What it has in memory; 0 once it has ended."""
    text = _read(_PROC / str(process) / "statm")
    return int(text.split()[1]) * _PAGE_BYTES if text else 0


def stored_bytes(process: int) -> int:
    """What it has had written to a disk so far; 0 once it has ended."""
    text = _read(_PROC / str(process) / "io")
    found = [line for line in text.splitlines() if line.startswith("write_bytes:")]
    return int(found[0].split()[1]) if found else 0


def _read(file: Path) -> str:
    try:
        return file.read_text()
    except (FileNotFoundError, ProcessLookupError):
        return ""  # a process may end between two looks


def kill_session(session: int) -> None:
    """kill -9 for all of them at once, and for those they started meanwhile."""
    while alive := [process for process in processes(session) if not _is_dead(process)]:
        for process in alive:
            try:
                os.kill(process, signal.SIGKILL)
            except ProcessLookupError:
                continue


def _is_dead(process: int) -> bool:
    text = _read(_PROC / str(process) / "stat")
    return not text or text.rpartition(")")[2].split()[0] in "ZX"


# What is left on disk.


class Files:
    """Every file that was ever seen under a place, with the greatest size it had: what is written
    and removed again counts, if a look fell in between. An engine's `scratch` does not count."""

    def __init__(self, place: Path) -> None:
        self._place = place
        self._sizes: dict[str, int] = {}

    def look(self) -> None:
        for directory, below, names in os.walk(self._place):
            if "scratch" in below and Path(directory) == self._place:
                below.remove("scratch")
            for name in names:
                path = os.path.join(directory, name)
                try:
                    size = os.stat(path).st_size
                except FileNotFoundError:
                    continue
                self._sizes[path] = max(size, self._sizes.get(path, 0))

    @property
    def files(self) -> int:
        return len(self._sizes)

    @property
    def bytes(self) -> int:
        return sum(self._sizes.values())


@dataclass
class Ground:
    """Where a job works: ``place`` is durable; ``scratch`` and ``cache`` are lost with a host."""

    root: Path
    cache: Path

    @property
    def place(self) -> Path:
        return self.root / "place"

    @property
    def scratch(self) -> Path:
        return self.root / "scratch"

    def begin(self) -> None:
        for directory in (self.place, self.scratch, self.cache):
            shutil.rmtree(directory, ignore_errors=True)
            directory.mkdir(parents=True, mode=0o700)

    def keep_image(self, image: Path) -> None:
        """A copy of all that a crash has left, times included."""
        shutil.copytree(self.place, image / "place", symlinks=True)
        shutil.copytree(self.cache, image / "cache", symlinks=True)

    def put_back(self, image: Path, *, with_cache: bool) -> None:
        """As it was right after the crash, in the same place: some engines keep whole paths."""
        self.begin()
        shutil.copytree(image / "place", self.place, symlinks=True, dirs_exist_ok=True)
        if with_cache:
            shutil.copytree(image / "cache", self.cache, symlinks=True, dirs_exist_ok=True)


@contextmanager
def ground() -> Iterator[Ground]:
    """A place on disk, and a cache in shared memory if there is any, both removed afterwards."""
    shared = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with (
        tempfile.TemporaryDirectory(prefix="peer-") as root,
        tempfile.TemporaryDirectory(prefix="peer-", dir=shared) as cache,
    ):
        here = Ground(Path(root), Path(cache) / "cache")
        here.begin()
        yield here


# A job.


@dataclass
class Watched:
    """What was seen of a job while it ran."""

    files: Files
    peak_bytes: int = 0
    _stored: dict[int, int] = field(default_factory=dict)

    def look(self, session: int) -> None:
        there = processes(session)
        self.peak_bytes = max(self.peak_bytes, sum(map(resident_bytes, there)))
        for process in there:
            self._stored[process] = max(self._stored.get(process, 0), stored_bytes(process))
        self.files.look()

    @property
    def stored_bytes(self) -> int:
        return sum(self._stored.values())


class Running:
    """A job that has been started; leaving the ``with`` block ends all its processes."""

    def __init__(
        self, peer: Peer, interpreter: Path, asked: Mapping[str, Any], here: Ground
    ) -> None:
        self.peer = peer
        self.events: list[Event] = []
        self.watched = Watched(Files(here.place))
        self._said: queue.Queue[Event | None] = queue.Queue()
        self._log = (here.root / "stderr").open("w+")
        self.started_at = time.time()
        self._process = subprocess.Popen(
            [str(interpreter), str(JOBS / peer.script), _asked(peer, asked, here)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
            env=_surroundings(peer, here),
            start_new_session=True,
        )
        self._is_over = threading.Event()
        self._threads = [threading.Thread(target=self._listen), threading.Thread(target=self._look)]
        for thread in self._threads:
            thread.start()

    def __enter__(self) -> Running:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.kill()

    def wait_for(self, is_it: Callable[[Event], bool], within_s: float) -> Event:
        """The first new event for which this holds."""
        until = time.monotonic() + within_s
        while True:
            try:
                event = self._said.get(timeout=max(0.0, until - time.monotonic()))
            except queue.Empty:
                raise JobFailed(self._failure(f"not there after {within_s:.0f} s")) from None
            if event is None:
                raise JobFailed(self._failure("the job ended before that"))
            self.events.append(event)
            if is_it(event):
                return event

    @property
    def newest(self) -> Event:
        """The last that a job has told before it ended, waited for or not."""
        while (event := self._said.get_nowait()) is not None:
            self.events.append(event)
        return self.events[-1]

    def kill(self) -> None:
        """kill -9, and everything it has left is looked at once more."""
        if self._is_over.is_set():
            return  # its number may be another process's by now
        kill_session(self._process.pid)
        self._process.wait()
        self._is_over.set()
        for thread in self._threads:
            thread.join()
        self.watched.files.look()
        assert self._process.stdout is not None
        self._process.stdout.close()
        self._log.close()

    def _listen(self) -> None:
        assert self._process.stdout is not None
        try:
            for event in read_events(self._process.stdout):
                self._said.put(event)
        finally:
            self._said.put(None)

    def _look(self) -> None:
        while not self._is_over.wait(_SAMPLE_S):
            self.watched.look(self._process.pid)

    def _failure(self, what: str) -> str:
        return f"{self.peer.label}: {what}. Its last words: {_last_words(self._log)}"


def _last_words(log: TextIO, characters: int = 300) -> str:
    """In one line: they may end up on the page."""
    log.flush()
    text = " ".join(Path(log.name).read_text(errors="replace").split())
    return text[-characters:] or "(none)"


def _asked(peer: Peer, asked: Mapping[str, Any], here: Ground) -> str:
    """What a job is told: what to do, and where."""
    where = {"variant": peer.variant, "place": str(here.place)}
    if peer.name == TRAILMARK.name:
        where["cache"] = str(here.cache)
    return json.dumps({**asked, **where})


def _surroundings(peer: Peer, here: Ground) -> dict[str, str]:
    """The environment variables of a job: whatever it takes for temporary goes to the scratch."""
    surroundings = dict(os.environ)
    surroundings.pop("PYTHONDONTWRITEBYTECODE", None)
    surroundings["TMPDIR"] = surroundings["SPARK_LOCAL_DIRS"] = str(here.scratch)
    surroundings["JAVA_TOOL_OPTIONS"] = f"-Xmx{HEAP_GIB}g -Djava.io.tmpdir={here.scratch}"
    if peer.environment != PROJECT:
        for name in ("PYTHONPATH", "PYSPARK_PYTHON"):
            surroundings.pop(name, None)
    # Scripts share code with one another, and workers of Spark's look for what queries are made of.
    known = [str(_ROOT), *filter(None, [surroundings.get("PYTHONPATH")])]
    surroundings["PYTHONPATH"] = os.pathsep.join(known)
    return surroundings
