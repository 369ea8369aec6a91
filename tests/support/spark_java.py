"""How the JVMs of tests are started: most of them live for seconds, so a quick start matters most.

They compile without much effort, and take Spark's classes from an archive of loaded ones if this
environment has one. ``python -m tests.support.spark_java`` makes it. A JVM that the archive does
not fit loads them from their jars.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.support.spark_orders import Orders, make_query
from tests.support.spark_query import Config

_ARCHIVE = Path(sys.prefix, "spark.jsa")
_QUICK = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"

#: How Spark writes its checkpoint where tests do not kill it. The way it takes by default runs
#: readlink(1) some thirty times in a batch, for a third of the time that a small batch takes. The
#: files are the same.
LIGHT_CHECKPOINT = {
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing."
        "FileSystemBasedCheckpointFileManager"
    )
}


def submit_arguments() -> str:
    """For PYSPARK_SUBMIT_ARGS, which all that a test starts inherits.

    The options that an application has of its own come after these, and count.
    """
    # Whom the archive does not fit says so on its output, among what tests read there.
    use = f"-XX:SharedArchiveFile={_ARCHIVE} -Xlog:cds*=off"
    return _arguments(use if _ARCHIVE.exists() else "")


def _arguments(more: str) -> str:
    words = []
    for process in ("driver", "executor"):
        words += ["--conf", f"spark.{process}.defaultJavaOptions={_QUICK} {more}".rstrip()]
    return shlex.join([*words, "pyspark-shell"])


def make_archive() -> None:
    """Archives the classes that two queries have needed from their start to their end."""
    unfinished = _ARCHIVE.with_suffix(".unfinished")
    with tempfile.TemporaryDirectory() as directory:
        orders = Orders(Path(directory, "in"), seed=1)
        orders.feed(4)
        queries = [make_query(Path(directory), orders, window) for window in ("count", "time")]
        config = Path(directory, "config.json")
        Config("local[2]", directory, queries).write(config)
        arguments = _arguments(f"-XX:ArchiveClassesAtExit={unfinished} -Xlog:disable")
        run = subprocess.run(
            [sys.executable, "-m", "tests.support.spark_query", str(config)],
            env=os.environ | {"PYSPARK_SUBMIT_ARGS": arguments},
            stdout=subprocess.PIPE,  # open until the JVM ends, which is after Python does
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
    if run.returncode != 0:
        sys.exit(f"A query does not run here:\n{run.stdout}")
    if unfinished.exists():
        unfinished.replace(_ARCHIVE)
    else:
        print(f"No archive of Spark's classes: tests take longer.\n{run.stdout}")


if __name__ == "__main__":
    make_archive()
