"""A table of a database that is kept current from the change feed of an operator."""

from __future__ import annotations

import importlib.util
import os
import shutil
import sqlite3
import subprocess
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from tests.support.answered import SOME_STEPS, Answered
from tests.support.spark_streams import follow
from trailmark.log import LocalStorage

# The recipe

SQLITE = {
    "insert": "INSERT INTO counts VALUES (?, ?, ?)",
    "delete": """DELETE FROM counts WHERE rowid = (
        SELECT rowid FROM counts WHERE (item, total, tentative) IS (?, ?, ?) LIMIT 1)""",
    "applied": "UPDATE applied SET batch = ?",
}
POSTGRES = {
    "insert": "INSERT INTO counts VALUES (%s, %s, %s)",
    "delete": """DELETE FROM counts WHERE ctid = (
        SELECT ctid FROM counts
        WHERE (item, total, tentative) IS NOT DISTINCT FROM (%s, %s, %s) LIMIT 1)""",
    "applied": "UPDATE applied SET batch = %s",
}


def keeps_current(connect: Callable[[], Any], sql: Mapping[str, str]) -> Any:
    """For `foreachBatch`: brings the table up to date, in one transaction per batch."""

    def apply(changes: DataFrame, _: int) -> None:
        rows = changes.orderBy("_commit_version", "_change_type").collect()  # deletes come first
        with closing(connect()) as database, database:
            (applied,) = database.execute("SELECT batch FROM applied").fetchone()
            new = [row for row in rows if row["_commit_version"] > applied]
            for row in new:
                values = (row["item"], row["total"], row["tentative"])
                database.execute(sql[row["_change_type"]], values)
            if new:
                database.execute(sql["applied"], (new[-1]["_commit_version"],))

    return apply


# Its tests

_TABLES = (
    "CREATE TABLE counts (item INTEGER, total INTEGER, tentative BOOLEAN)",
    "CREATE TABLE applied (batch INTEGER)",
    "INSERT INTO applied VALUES (-1)",
)


class _Crash(Exception):
    pass


class _Follower:
    """A query that keeps a table current, and is started again and again."""

    def __init__(
        self, spark: SparkSession, place: Path, connect: Callable[[], Any], sql: Mapping[str, str]
    ) -> None:
        self._spark = spark
        self._place = place
        self._connect = connect
        self._apply = keeps_current(connect, sql)
        self.logs = Answered(LocalStorage(place / "logs"), SOME_STEPS)
        with closing(connect()) as database, database:
            for each in _TABLES:
                database.execute(each)

    def run(self, apply: Any = None) -> None:
        """Follows the feed as far as it goes."""
        feed = follow(self._spark, self._place / "logs", readChangeFeed="true", reader="table")
        writer = feed.writeStream.foreachBatch(self._apply if apply is None else apply)
        writer = writer.option("checkpointLocation", str(self._place / "checkpoint"))
        writer.trigger(availableNow=True).start().awaitTermination()

    def run_twice(self) -> None:
        """Every batch is applied twice; then the query fails, and Spark does it again."""

        def twice_and_crash(changes: DataFrame, number: int) -> None:
            self._apply(changes, number)
            self._apply(changes, number)
            raise _Crash("behind the commit of the database")

        with pytest.raises(Exception, match="behind the commit of the database"):
            self.run(twice_and_crash)
        self.check()
        self.run()

    def check(self) -> None:
        with closing(self._connect()) as database:
            rows = database.execute("SELECT item, total, tentative FROM counts").fetchall()
        found = Counter((item, total, bool(mark)) for item, total, mark in rows)
        wanted: Counter[tuple[Any, ...]] = Counter()
        for (row, mark), count in self.logs.current(len(self.logs.reports) - 1).items():
            wanted[(*row[:2], mark)] += count
        assert found == wanted


def _check_all(follower: _Follower) -> None:
    for batches in (3, 2, 2):
        follower.logs.run(batches)
        follower.run_twice()
        follower.check()


def test_a_sqlite_table_is_kept_current_and_a_batch_that_runs_twice_changes_nothing(
    spark: SparkSession, tmp_path: Path
) -> None:
    database = tmp_path / "counts.db"
    _check_all(_Follower(spark, tmp_path, lambda: sqlite3.connect(database), SQLITE))


@pytest.fixture
def postgres(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Where a new PostgreSQL listens, on a socket of its own."""
    commands = shutil.which("postgres") or next(
        iter(sorted(map(str, Path("/usr/lib/postgresql").glob("*/bin/postgres")))), None
    )
    if commands is None:
        pytest.skip("there is no postgres, neither on the PATH nor in /usr/lib/postgresql")
    if importlib.util.find_spec("psycopg") is None:
        pytest.skip("psycopg is not installed")
    bin_directory = Path(commands).resolve().parent
    place = Path("/tmp") / tmp_path_factory.mktemp("pg").name  # the path of a socket is short
    place.mkdir()
    # It refuses to run as root.
    user: dict[str, Any] = {"user": "postgres", "group": "postgres"} if os.getuid() == 0 else {}
    if user:
        shutil.chown(place, "postgres", "postgres")
    quiet = {"check": True, "stdout": subprocess.DEVNULL, "cwd": place, **user}
    data = place / "data"
    command: list[Any] = [bin_directory / "initdb", "-D", data, "-U", "tester", "-A", "trust", "-N"]
    subprocess.run(command, **quiet)
    options = f"-k {place} -c listen_addresses='' -F"
    control: list[Any] = [bin_directory / "pg_ctl", "-D", data, "-w", "-l", place / "log"]
    subprocess.run([*control, "-o", options, "start"], **quiet)
    try:
        yield f"host={place} user=tester dbname=postgres"
    finally:
        subprocess.run([*control, "-m", "immediate", "stop"], **quiet)
        shutil.rmtree(place)


def test_a_postgres_table_is_kept_current_and_a_batch_that_runs_twice_changes_nothing(
    spark: SparkSession, tmp_path: Path, postgres: str
) -> None:
    psycopg = importlib.import_module("psycopg")
    _check_all(_Follower(spark, tmp_path, lambda: psycopg.connect(postgres), POSTGRES))
