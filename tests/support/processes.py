"""Real processes at work on real files: started by a test, stopped and killed by it.

A worker is told what to do over a pipe, one command at a time, and answers with a value or with
the error it met. Workers are forked from a server that has everything imported, so that starting
one takes milliseconds.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
import time
import traceback
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa

from tests.support.hooked import HookedAggregate
from trailmark.checkpoint.policy import Policy
from trailmark.engine import Bucket, OperatorLogs
from trailmark.errors import TrailmarkError
from trailmark.log import LocalStorage, Part
from trailmark.operators.protocol import AnyOperator
from trailmark.settings import LogSettings
from trailmark.state.cache import StateCache

#: Far more than anything takes here; a worker that is silent for so long hangs.
_PATIENCE_S = 60.0

_context = multiprocessing.get_context("forkserver")
_context.set_forkserver_preload(["tests.support.processes"])


@dataclass(frozen=True)
class Place:
    """A query: what it computes, and where its files are."""

    path: Path
    #: A `tests.support.engine.CrashCase`; whoever made it knows of which kind.
    case: Any
    policy: Policy
    buckets: int = 1
    cache: Path | None = None
    settings: LogSettings = field(default_factory=LogSettings)
    #: Who keeps the logs short; None starts a thread for it.
    beside: Executor | None = None

    def logs(self, storage: LocalStorage | None = None) -> OperatorLogs:
        return OperatorLogs(
            LocalStorage(self.path, self.settings.durability) if storage is None else storage,
            self.case.operator(),
            buckets=self.buckets,
            query_id="query",
            settings=self.settings,
        )

    def bucket(
        self,
        number: int = 0,
        *,
        operator: AnyOperator | None = None,
        storage: LocalStorage | None = None,
    ) -> Bucket:
        return Bucket(
            self.case.operator() if operator is None else operator,
            self.logs(storage),
            number,
            self.policy,
            None if self.cache is None else StateCache(self.cache),
            beside=self.beside,
        )


@dataclass(frozen=True)
class Run:
    """Run a batch; ``at`` is the moment to begin, ``keep`` whether to keep the state afterwards.

    ``stop_at`` names a step before which the process stops itself, until somebody lets it go on.
    """

    batch: int
    rows: pa.RecordBatch
    number: int = 0
    at: float | None = None
    keep: bool = True
    stop_at: str | None = None


#: Steps that `Run.stop_at` can name, in their order.
STEPS = ("input", "process", "choose", "output", "commit")


def stop_here() -> None:
    """Stops this process, and this thread first: a signal to the process as a whole may go to
    another thread, and leave this one the time for a few calls more."""
    signal.pthread_kill(threading.get_ident(), signal.SIGSTOP)


class _StopOnce:
    """Stops this process at a step, the first time it comes there."""

    def __init__(self, step: str) -> None:
        self._step = step

    def at(self, step: str) -> None:
        if step == self._step:
            self._step = ""
            stop_here()


class _Stopping(LocalStorage):
    """Stops its process before a segment is published, or right after."""

    def __init__(self, root: Path, stop: _StopOnce) -> None:
        super().__init__(root)
        self._stop = stop

    def publish(self, path: str, parts: Sequence[Part], *, force_sync: bool = False) -> bool:
        is_output = path.startswith("out/")
        if is_output or path.startswith("in/"):
            self._stop.at("output" if is_output else "input")
        created = super().publish(path, parts, force_sync=force_sync)
        if is_output:
            self._stop.at("commit")
        return created


class _Server:
    """What a worker does: runs batches, with or without keeping the buckets open."""

    def __init__(self, place: Place) -> None:
        self._place = place
        self._buckets: dict[int, Bucket] = {}

    def run(self, command: Run) -> Any:
        if command.stop_at is not None:
            self.close(command.number)
            self._buckets[command.number] = self._stopping(command)
        bucket = self._buckets.get(command.number)
        if bucket is None:
            bucket = self._buckets[command.number] = self._place.bucket(command.number)
        while command.at is not None and time.monotonic() < command.at:
            pass  # as close to the others as can be
        try:
            return bucket.run(command.batch, command.rows)
        finally:
            if not command.keep:
                self.close(command.number)

    def _stopping(self, command: Run) -> Bucket:
        assert command.stop_at in STEPS
        stop = _StopOnce(command.stop_at)
        operator = HookedAggregate(
            self._place.case, before=lambda: stop.at("process"), after=lambda: stop.at("choose")
        )
        storage = _Stopping(self._place.path, stop)
        return self._place.bucket(command.number, operator=operator, storage=storage)

    def close(self, number: int) -> None:
        bucket = self._buckets.pop(number, None)
        if bucket is not None:
            bucket.close()

    def close_all(self) -> None:
        for number in list(self._buckets):
            self.close(number)


class Pipe(Protocol):
    """The worker's end: takes commands, gives answers."""

    def recv(self) -> Any: ...

    def send(self, answer: Any) -> None: ...


Task = Callable[..., None]


def serve(pipe: Pipe, place: Place) -> None:
    """The task of a worker that is told batch by batch what to run; None ends it."""
    server = _Server(place)
    while (command := pipe.recv()) is not None:
        try:
            answer = server.run(command)
        except TrailmarkError as error:
            answer = error
        pipe.send(answer)
    server.close_all()


class Worker:
    """A process that carries out a task, and the pipe to it."""

    def __init__(self, task: Task, place: Place, *arguments: Any) -> None:
        self._connection, theirs = _context.Pipe()
        self._process = _context.Process(target=_carry_out, args=(task, theirs, place, *arguments))
        self._process.start()
        theirs.close()

    @property
    def pid(self) -> int:
        assert self._process.pid is not None
        return self._process.pid

    def send(self, command: Any) -> None:
        self._connection.send(command)

    def receive(self) -> Any:
        """The next answer: what the task returned, or the error that it met."""
        assert self._connection.poll(_PATIENCE_S), "the worker does not answer"
        kind, answer = self._connection.recv()
        assert kind != "failure", answer
        return answer

    def ask(self, command: Any) -> Any:
        self.send(command)
        return self.receive()

    def wait_until_stopped(self) -> None:
        """Waits for the process to be stopped, as it does to itself or as SIGSTOP does."""
        until = time.monotonic() + _PATIENCE_S
        while _state_of(self.pid) != "T":
            assert time.monotonic() < until, f"the worker is in state {_state_of(self.pid)}"
            time.sleep(0.001)

    def go_on(self) -> None:
        os.kill(self.pid, signal.SIGCONT)

    def kill(self) -> None:
        """kill -9, and wait until it is gone."""
        os.kill(self.pid, signal.SIGKILL)
        self._process.join(_PATIENCE_S)
        assert self._process.exitcode == -signal.SIGKILL
        self._connection.close()

    def finish(self) -> None:
        """Waits for the task to end by itself."""
        self._process.join(_PATIENCE_S)
        assert self._process.exitcode == 0
        self._connection.close()

    def __enter__(self) -> Worker:
        return self

    def __exit__(self, *_: object) -> None:
        if self._process.is_alive():
            self.kill()


def _state_of(pid: int) -> str:
    text = Path(f"/proc/{pid}/stat").read_text()
    return text.rpartition(")")[2].split()[0]


class _Answering:
    """Marks what a task sends as an answer, so that a failure can be told from it."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def recv(self) -> Any:
        return self._connection.recv()

    def send(self, answer: Any) -> None:
        self._connection.send(("answer", answer))


def _carry_out(task: Task, connection: Connection, place: Place, *arguments: Any) -> None:
    try:
        task(_Answering(connection), place, *arguments)
    except EOFError:
        return  # the test has what it wants
    except BaseException:
        connection.send(("failure", traceback.format_exc()))
        raise
