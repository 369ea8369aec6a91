"""A server of Spark Connect, started from what PySpark comes with, and clients of it.

A process is either a client or has a driver of its own. So clients are processes, too: the same
applications as elsewhere (see `tests.support.spark_query`), with a server for their master.
"""

from __future__ import annotations

import importlib.util
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

from tests.support.spark_runs import (
    PATIENCE_S,
    Process,
    all_processes,
    environment,
    kill_all,
    wait_until,
)

_SERVER = "org.apache.spark.sql.connect.service.SparkConnectServer"
#: A script may run several queries.
_SCRIPT_S = 5 * PATIENCE_S
_SUBMITTED = ("--master", "local[2]", "--class", _SERVER)
_QUICK = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


def why_not() -> str:
    """Why this Python cannot be a client; empty if it can."""
    missing = [name for name in ("grpc", "grpc_status") if importlib.util.find_spec(name) is None]
    return f"pip install 'pyspark[connect]': there is no {missing[0]}" if missing else ""


class ConnectServer:
    """Whatever is left of it ends with the test."""

    def __init__(self, directory: Path, conf: dict[str, str] | None = None) -> None:
        directory.mkdir(parents=True)
        self._log = directory / "server.log"
        port = _free_port()
        settings = {
            "spark.connect.grpc.binding.address": "127.0.0.1",
            "spark.connect.grpc.binding.port": str(port),
            "spark.driver.host": "127.0.0.1",
            "spark.driver.defaultJavaOptions": _QUICK,
            "spark.local.dir": str(directory / "local"),
            "spark.sql.warehouse.dir": str(directory / "warehouse"),
            "spark.sql.session.timeZone": "UTC",
            "spark.ui.enabled": "false",
            **(conf or {}),
        }
        given = [word for each in settings.items() for word in ("--conf", "=".join(each))]
        home = environment()["SPARK_HOME"]
        with open(self._log, "wb") as log:
            self._process = subprocess.Popen(
                [f"{home}/bin/spark-submit", *_SUBMITTED, *given, "spark-internal"],
                cwd=directory,
                env={name: text for name, text in environment().items() if "SUBMIT" not in name},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self.url = f"sc://127.0.0.1:{port}"
        try:
            wait_until("the server listens", lambda: self._listens(port))
        except BaseException:
            self.close()
            raise

    def _listens(self, port: int) -> bool:
        assert self._process.poll() is None, self.log()
        with socket.socket() as tried:
            return tried.connect_ex(("127.0.0.1", port)) == 0

    def log(self) -> str:
        return self._log.read_text(errors="replace")[-6000:]

    def processes(self) -> list[Process]:
        return [process for process in all_processes() if process.session == self._process.pid]

    def kill(self) -> None:
        """kill -9 of the driver; its Python workers notice."""
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait(PATIENCE_S)

    def close(self) -> None:
        """Ends what is left of it."""
        kill_all(self.processes())
        self._process.wait(PATIENCE_S)

    def __enter__(self) -> ConnectServer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
        return port


def run_client(url: str, script: str, directory: Path) -> list[str]:
    """What a script says, line by line, that has ``spark``, a session of the server; it has to end
    well."""
    begin = f"""
from pyspark.sql import SparkSession
spark = SparkSession.builder.remote({url!r}).getOrCreate()
"""
    done = subprocess.run(
        [sys.executable, "-c", f"{begin}{script}\nspark.stop()"],
        cwd=directory,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=_SCRIPT_S,
        check=False,
    )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    return done.stdout.splitlines()
