"""A standalone cluster of Spark, of the processes that come with PySpark: a master, and a worker on
each host."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.support.network import Host
from tests.support.spark_runs import (
    PATIENCE_S,
    Process,
    all_processes,
    environment,
    kill_all,
    wait_until,
)

_QUICK = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


class Cluster:
    """Whatever is left of it ends with the test.

    Spark starts the twin of a task on another host only, and all executors of ``local-cluster`` are
    on the same one. Here there are as many as are given (see `tests.support.network`).

    Parameters
    ----------
    directory
        For what its processes write.
    workers
        The hosts that have a worker.
    master
        The host of the master.
    cores
        How many each worker has.
    lost_after_s
        How long the master waits for a worker that says nothing.
    local_dirs
        Where Spark keeps files that live as long as an executor, as a host sees it.
    """

    def __init__(
        self,
        directory: Path,
        workers: Sequence[Host],
        *,
        master: Host | None = None,
        cores: int = 1,
        lost_after_s: int = 60,
        local_dirs: str | None = None,
    ) -> None:
        self._directory = directory
        self._hosts = list(workers)
        self._size = ("--cores", str(cores), "--memory", f"{cores}g")
        self._lost_after_s = lost_after_s
        self._local_dirs = local_dirs or str(directory / "local")
        directory.mkdir(parents=True)
        self._started: list[subprocess.Popen[bytes]] = []
        #: The newest process of each worker.
        self._workers: dict[int, subprocess.Popen[bytes]] = {}
        try:
            host = Host("127.0.0.1") if master is None else master
            started = self._start("master", host, "master.Master")
            self.url = self._wait_for(started, "master", "Starting Spark master at ")
            for number in range(len(workers)):
                self.start_worker(number)
        except BaseException:
            self.close()
            raise

    def start_worker(self, number: int) -> None:
        """Starts a worker, also one after another that has ended on its host."""
        name = f"worker-{number}.{len(self._started)}"
        work = ("--work-dir", str(self._directory / name))
        started = self._start(
            name, self._hosts[number], "worker.Worker", *self._size, *work, self.url
        )
        self._workers[number] = started
        self._wait_for(started, name, "Successfully registered with master ")

    def _start(self, name: str, host: Host, role: str, *words: str) -> subprocess.Popen[bytes]:
        given = {
            **environment(),
            "SPARK_DAEMON_JAVA_OPTS": f"{_QUICK} -Dspark.worker.timeout={self._lost_after_s}",
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_LOCAL_DIRS": self._local_dirs,
        }
        del given["SPARK_LOCAL_IP"]  # every host has its own
        command = Path(given["SPARK_HOME"], "bin", "spark-class")
        at = ("--host", host.address, "--port", "0", "--webui-port", "0")
        with open(self._log(name), "wb") as log:
            process = subprocess.Popen(
                [*host.start, str(command), f"org.apache.spark.deploy.{role}", *at, *words],
                cwd=self._directory,
                env=given,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self._started.append(process)
        return process

    def _log(self, name: str) -> Path:
        return self._directory / f"{name}.log"

    def _wait_for(self, started: subprocess.Popen[bytes], name: str, words: str) -> str:
        """What follows the words in the log."""

        def is_there() -> bool:
            assert started.poll() is None, self._log(name).read_text()
            return words in self._log(name).read_text()

        wait_until(f"{words!r} of {name}", is_there)
        return self._log(name).read_text().partition(words)[2].split()[0]

    # Hosts, and harm to them

    def processes(self, number: int) -> list[Process]:
        """The worker of a host, the executors that it has started, and what these have."""
        session = self._workers[number].pid
        return [process for process in all_processes() if process.session == session]

    def executors(self, number: int) -> list[int]:
        found = self.processes(number)
        return [p.pid for p in found if "CoarseGrainedExecutorBackend" in p.command]

    def states(self, number: int) -> list[Path]:
        """The states of buckets that are in a host's memory and whole."""
        for executor in self.executors(number):
            return list(Path(f"/proc/{executor}/root/dev/shm").glob("trailmark-*/*/*/token"))
        return []

    @contextmanager
    def full(self, number: int) -> Iterator[None]:
        """No byte is left in the memory of a host that has an executor, nor of what lies there."""
        (executor,) = self.executors(number)
        memory = f"/proc/{executor}/root/dev/shm"
        found = os.statvfs(memory)
        # Opened as long as the executor is there: what is at its root goes with it.
        with open(f"{memory}/ballast", "wb") as ballast:
            os.posix_fallocate(ballast.fileno(), 0, found.f_bavail * found.f_frsize)
            try:
                yield
            finally:
                ballast.truncate(0)

    def host_of(self, pid: int) -> int:
        """The host that a process is on."""
        (found,) = (
            number for number in self._workers if pid in {p.pid for p in self.processes(number)}
        )
        return found

    def kill(self, number: int) -> None:
        """kill -9 of all that a host runs."""
        kill_all(self.processes(number))
        self._workers[number].wait(PATIENCE_S)

    def decommission(self, number: int) -> None:
        """Tells the executor of a host to end once what it has is elsewhere."""
        (executor,) = self.executors(number)
        os.kill(executor, signal.SIGPWR)

    def freeze(self, number: int) -> list[Process]:
        """SIGSTOP for all that a host runs, until `go_on`."""
        found = self.processes(number)
        _signal(found, signal.SIGSTOP)
        return found

    def close(self) -> None:
        """Ends the cluster and the executors that its workers have started."""
        sessions = {process.pid for process in self._started}
        kill_all([process for process in all_processes() if process.session in sessions])
        for started in self._started:
            started.wait(PATIENCE_S)

    def __enter__(self) -> Cluster:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def go_on(frozen: Sequence[Process]) -> None:
    """SIGCONT for what was frozen."""
    _signal(frozen, signal.SIGCONT)


def _signal(processes: Sequence[Process], number: int) -> None:
    for process in processes:
        os.kill(process.pid, number)
