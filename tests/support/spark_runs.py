"""Spark applications as processes: started, followed, held, killed, and gone afterwards."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from tests.support.spark_java import spark_home
from tests.support.spark_query import Config, Query
from tests.support.standby_query import StandbyConfig
from tests.support.stream_query import Step, StepsConfig

_REPOSITORY = Path(__file__).parents[2]
#: Far more than anything takes here, on a busy machine too.
PATIENCE_S = 120.0

SMALL_EXECUTORS = {"spark.executor.memory": "512m"}
#: A task that lags a little behind the others gets a twin.
EAGER_SPECULATION = {
    "spark.speculation": "true",
    "spark.speculation.interval": "10ms",
    "spark.speculation.multiplier": "1.1",
    "spark.speculation.quantile": "0.1",
    "spark.speculation.minTaskRuntime": "10ms",
}


@dataclass(frozen=True)
class Process:
    """A process as /proc shows it."""

    pid: int
    parent: int
    session: int
    command: str


def all_processes() -> Iterator[Process]:
    for name in os.listdir("/proc"):
        if name.isdigit():
            with suppress(FileNotFoundError, ProcessLookupError):
                fields = Path(f"/proc/{name}/stat").read_text().rpartition(")")[2].split()
                command = Path(f"/proc/{name}/cmdline").read_bytes().replace(b"\0", b" ")
                if fields[0] not in "ZX":
                    text = command.decode(errors="replace")
                    yield Process(int(name), int(fields[1]), int(fields[3]), text)


def executor_of(worker: int) -> int:
    """The executor JVM that a Python worker works for, whether of an application or a cluster."""
    found = {p.pid: p for p in all_processes()}
    executor = found[found[found[worker].parent].parent]
    assert "CoarseGrainedExecutorBackend" in executor.command, executor
    return executor.pid


def wait_until(what: str, is_so: Callable[[], bool], patience_s: float = PATIENCE_S) -> None:
    until = time.monotonic() + patience_s
    while not is_so():
        assert time.monotonic() < until, f"waited in vain: {what}"
        time.sleep(0.01)


def kill_all(processes: Sequence[Process]) -> None:
    for process in processes:
        with suppress(ProcessLookupError):
            os.kill(process.pid, signal.SIGKILL)


class Application:
    """A Spark application in processes of its own; whatever is left of it ends with the test.

    Parameters
    ----------
    directory
        For its configuration and all that Spark writes beside the queries' own directories.
    queries
        What it runs first.
    wrapper
        A command to run it under.
    """

    def __init__(
        self,
        directory: Path,
        queries: Sequence[Query],
        *,
        master: str = "local[2]",
        conf: dict[str, str] | None = None,
        serve: bool = False,
        wrapper: Sequence[str] = (),
    ) -> None:
        scratch = str(directory)
        config = Config(master, scratch, list(queries), conf or {}, serve)
        self._begin(directory, "tests.support.spark_query", config, wrapper)

    @classmethod
    def of_steps(
        cls,
        directory: Path,
        steps: Sequence[Step],
        *,
        master: str = "local[2]",
        conf: dict[str, str] | None = None,
    ) -> Application:
        """An application that moves rows between persistent streams."""
        application = cls.__new__(cls)
        config = StepsConfig(master, str(directory), list(steps), conf or {})
        application._begin(directory, "tests.support.stream_query", config, ())
        return application

    @classmethod
    def of_standby(
        cls, directory: Path, config: StandbyConfig, wrapper: Sequence[str] = ()
    ) -> Application:
        """One of several that would run a query."""
        application = cls.__new__(cls)
        application._begin(directory, "tests.support.standby_query", config, wrapper)
        return application

    @classmethod
    def of_script(cls, directory: Path, script: Path, env: Mapping[str, str]) -> Application:
        """A script of a user's, in the directory that it is started in."""
        application = cls.__new__(cls)
        application._start(directory, [sys.executable, str(script)], directory, env)
        return application

    def _begin(
        self,
        directory: Path,
        module: str,
        config: Config | StepsConfig | StandbyConfig,
        wrapper: Sequence[str],
    ) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        path = directory / "config.json"
        config.write(path)
        command = [*wrapper, sys.executable, "-m", module, str(path)]
        self._start(directory, command, _REPOSITORY, environment())

    def _start(
        self, directory: Path, command: Sequence[str], cwd: Path, env: Mapping[str, str]
    ) -> None:
        self._said: list[str] = []
        self._rounds = 0  # that of the configuration
        self._errors = directory / "stderr"
        with open(self._errors, "ab") as errors:
            self._process = subprocess.Popen(
                command,
                cwd=cwd,
                env=env,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                start_new_session=True,
            )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as lines:
            for line in lines:
                self._said.append(line.rstrip("\n"))

    @property
    def said(self) -> list[str]:
        return list(self._said)

    def batches(self, name: str) -> list[int]:
        """The batches of a query that this application has committed."""
        marks = [line.split() for line in self.said if line.startswith(f"batch {name} ")]
        return [int(mark[2]) for mark in marks]

    def wait_until(self, what: str, is_so: Callable[[], bool]) -> None:
        """Waits for something to happen while the application runs."""

        def has_come() -> bool:
            if is_so():
                return True
            assert self.is_running, f"{what}: it ended before\n{self.story()}"
            return is_so()

        try:
            wait_until(what, has_come)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.story()}") from None

    def wait_for_batch(self, query: Query | Step, batch: int = 0) -> None:
        """Waits until a query has committed a batch that is not before this one."""
        self.wait_until(
            f"batch {batch} of {query.name}",
            lambda: any(done >= batch for done in self.batches(query.name)),
        )

    @property
    def is_running(self) -> bool:
        return self._process.poll() is None

    def run(self, queries: Sequence[Query]) -> str:
        """Lets a serving application run queries to the end; returns the message of a failure."""
        return self.start(queries).outcome()

    def start(self, queries: Sequence[Query]) -> Round:
        """Lets a serving application run queries, after those that it was given before."""
        assert self._process.stdin is not None
        self._rounds += 1
        self._process.stdin.write(json.dumps([asdict(query) for query in queries]) + "\n")
        self._process.stdin.flush()
        return Round(self, self._rounds)

    def outcomes(self) -> list[str]:
        """What became of the rounds that have ended: the message of a failure, or nothing."""
        ends = [line for line in self.said if line.startswith(("finished", "failed "))]
        return [json.loads(end[7:]) if end.startswith("failed ") else "" for end in ends]

    def finish(self) -> None:
        """Waits for it to end by itself, with everything done, and to leave nothing behind.

        How long that takes depends on how much there is to do: what it may not is to stand still.
        """
        assert self._process.stdin is not None
        self._process.stdin.close()
        code: int | None = None
        while code is None:
            said = len(self._said)
            try:
                code = self._process.wait(PATIENCE_S)
            except subprocess.TimeoutExpired:
                story = f"it neither ends nor gets on\n{self.story()}"
                assert len(self._said) > said, story
        assert code == 0, self.story()
        wait_until("all its processes are gone", lambda: not self.processes(), 30)
        self.close()

    # Harm

    def processes(self) -> list[Process]:
        """All that belong to it: Python's daemons leave the process group, not the session."""
        return [p for p in all_processes() if p.session == self._process.pid]

    def workers(self) -> list[int]:
        """Python workers: the children of pyspark's daemons."""
        found = self.processes()
        daemons = {p.pid for p in found if "pyspark.daemon" in p.command}
        return [p.pid for p in found if p.parent in daemons]

    def executors(self) -> list[int]:
        return [p.pid for p in self.processes() if "CoarseGrainedExecutorBackend" in p.command]

    def kill_driver(self, *, with_workers: bool) -> None:
        """kill -9 of the driver's Python and JVM; its Python workers notice, or die with it."""
        assert self.is_running, f"it ended before it was killed\n{self.story()}"
        others = self.processes() if with_workers else []
        os.killpg(self._process.pid, signal.SIGKILL)
        kill_all(others)
        assert self._process.wait(PATIENCE_S) == -signal.SIGKILL
        self._drain()

    def terminate(self) -> None:
        """SIGTERM to the driver."""
        self._process.terminate()

    def kill(self, pid: int) -> None:
        """kill -9 of one of its processes, and wait until it is gone."""
        kill_all([process for process in self.processes() if process.pid == pid])
        self.wait_until("it is gone", lambda: pid not in {p.pid for p in self.processes()})

    def kill_if_there(self, pid: int) -> bool:
        """kill -9 of one of its processes; False if it has ended by itself meanwhile."""
        found = [process for process in self.processes() if process.pid == pid]
        kill_all(found)
        return bool(found)

    def close(self) -> None:
        """Ends what is left of it."""
        kill_all(self.processes())
        self._process.wait(PATIENCE_S)
        self._drain()

    def _drain(self) -> None:
        """Takes in the last words of a process that has ended."""
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):
            self._process.stdin.close()
        self._reader.join(PATIENCE_S)

    def __enter__(self) -> Application:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def errors(self) -> str:
        """What Spark and the workers have logged, those of earlier runs in the directory too."""
        return self._errors.read_text(errors="replace")

    def story(self) -> str:
        """For the message of a failed test."""
        return "\n".join([*self.said[-20:], "--- stderr:", self.errors()[-6000:]])


@dataclass(frozen=True)
class Round:
    """Queries that an application runs side by side."""

    application: Application
    number: int

    @property
    def has_ended(self) -> bool:
        return len(self.application.outcomes()) > self.number

    def outcome(self) -> str:
        """Waits for the end; the message of a failure, or nothing."""
        self.application.wait_until("the end of the queries", lambda: self.has_ended)
        return self.application.outcomes()[self.number]


def environment() -> dict[str, str]:
    """For processes of Spark."""
    # Executors start elsewhere and need the tests, too; the rest of the path may say which
    # Trailmark is tested.
    path = [str(_REPOSITORY), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {
        **os.environ,
        "PYSPARK_PYTHON": sys.executable,
        "PYTHONPATH": os.pathsep.join(path),
        # Scripts of Spark look for it in directories that PySpark does not have.
        "SPARK_SCALA_VERSION": "2.13",
        "SPARK_HOME": spark_home(),
        "SPARK_LOCAL_IP": "127.0.0.1",
    }


# Traps (see `tests.support.traps`)


def set_trap(query: Query | Step, kind: str) -> None:
    Path(query.trap, kind).touch()


def caught(query: Query | Step, kind: str) -> list[int]:
    """The processes that have met a trap and have not been let go."""
    return [int(path.suffix[1:]) for path in Path(query.trap).glob(f"{kind}.*")]


def release(query: Query | Step) -> None:
    for path in Path(query.trap).glob("hold.*"):
        path.unlink()


def hold_a_worker(application: Application, query: Query | Step) -> int:
    """The process id of a worker that now stands still in the middle of a batch."""
    set_trap(query, "hold")
    return held_worker(application, query)


def held_worker(application: Application, query: Query | Step) -> int:
    """The process id of the worker that is held by a trap, once it has met it."""
    application.wait_until("a worker is held", lambda: bool(caught(query, "hold")))
    (pid,) = caught(query, "hold")
    return pid
