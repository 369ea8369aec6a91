"""How Spark is started by tests: most of its processes live for seconds, so a quick start matters
most.

JVMs compile without much effort, and take Spark's classes from an archive of loaded ones. Python
workers take PySpark from where it is installed. Both are prepared in a home of Spark in this
environment, by ``python -m tests.support.spark_java``; without one, tests only take longer. A JVM
that the archive does not fit loads classes from their jars.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pyspark

from tests.support.spark_orders import Orders, make_query
from tests.support.spark_query import Config
from tests.support.spark_versions import SPARK

_INSTALLED = Path(pyspark.__file__).parent
_HOME = Path(sys.prefix, "spark")
_ARCHIVE = _HOME / "classes.jsa"
_QUICK = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"

#: How Spark writes its checkpoint where tests do not kill it. The way it takes by default runs
#: readlink(1) some thirty times in a batch, for a third of the time that a small batch takes. The
#: files are the same.
LIGHT_CHECKPOINT = {
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming."
        f"{'' if SPARK == (4, 0) else 'checkpointing.'}FileSystemBasedCheckpointFileManager"
    )
}


def spark_home() -> str:
    """For SPARK_HOME."""
    return str(_HOME if _ARCHIVE.exists() else _INSTALLED)


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


def make_home() -> None:
    """A home in which PySpark's own zips are directories that lead to the installed packages.

    Spark puts the zips first on the path of its workers, and what comes out of a zip is compiled
    anew by every process: more than a second each. The modules are the same.
    """
    shutil.rmtree(_HOME, ignore_errors=True)
    for zipped in (_INSTALLED / "python" / "lib").glob("*.zip"):
        package = zipped.stem.partition("-")[0]
        instead = _HOME / "python" / "lib" / zipped.name
        instead.mkdir(parents=True)
        (instead / package).symlink_to(_INSTALLED.parent / package)
    for name in ("bin", "jars"):
        (_HOME / name).symlink_to(_INSTALLED / name)


def make_archive() -> None:
    """Archives the classes that two queries have needed from their start to their end.

    They count as the same only for JVMs that are started in the same home.
    """
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
            env=os.environ | {"PYSPARK_SUBMIT_ARGS": arguments, "SPARK_HOME": str(_HOME)},
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
    make_home()
    make_archive()
