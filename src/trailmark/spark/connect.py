"""Sessions of Spark Connect: a client without a JVM, whose plans run on a server.

Operators run there by public names of Spark's alone. What needs to look into a plan, or into the
driver, is refused by name.
"""

from __future__ import annotations

import os

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from trailmark.errors import SettingError
from trailmark.log.storage.urls import is_url

#: More rows than a server has cores.
_MANY = 4096


def is_connect(session: SparkSession) -> bool:
    """Whether a session is a client of Spark Connect."""
    return not isinstance(session, SparkSession)  # theirs has only the same methods


def parallelism(session: SparkSession) -> int:
    """How many tasks Spark means to run at a time."""
    if not is_connect(session):
        return session.sparkContext.defaultParallelism
    parts = session.range(0, _MANY).select(F.spark_partition_id().alias("part"))
    return parts.distinct().count()


def check_full(path: str | os.PathLike[str]) -> None:
    """Refuses a path that would be another place to the server."""
    text = os.path.expanduser(os.fspath(path))
    if not is_url(text) and not os.path.isabs(text):
        raise SettingError(
            f"{os.fspath(path)!r} is relative, and the server of Spark Connect goes by a "
            "directory of its own.",
            where="path",
            fix="Give the full path, of a place that the server and this process both reach.",
        )


def refused(what: str, why: str, where: str) -> SettingError:
    """What does not run on Spark Connect."""
    return SettingError(
        f"{what} is not supported on Spark Connect: {why}.",
        where=where,
        fix="Run the query in a session of its own driver. What works on Spark Connect is in "
        "docs/spark.md.",
    )


def check_not_marked(*, may_be_tentative: bool, argument: str) -> None:
    """Refuses rows that may be tentative: what stands of them is found out from Spark's plans."""
    if may_be_tentative:
        raise SettingError(
            "Rows may be tentative, and on Spark Connect nobody could tell what becomes of them.",
            where=argument,
            fix="Read what stands: .option('answers', 'stable').",
        )
