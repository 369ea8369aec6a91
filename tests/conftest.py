"""One Spark session for the tests of a process; everything else is new for every test."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.support.spark_java import LIGHT_CHECKPOINT, submit_arguments


def pytest_configure() -> None:
    os.environ["PYSPARK_SUBMIT_ARGS"] = submit_arguments()
    # A shell starts what runs in its background deaf to Ctrl-C, and so would be all that tests
    # start and interrupt.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """Spark as it comes, but for what keeps it quick, quiet and inside its own directory."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    place = tmp_path_factory.mktemp("spark")
    session = (
        SparkSession.builder.master("local[2]")
        .appName("trailmark-tests")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.local.dir", str(place / "local"))
        .config("spark.sql.warehouse.dir", str(place / "warehouse"))
        .config("spark.sql.session.timeZone", "Pacific/Chatham")
        .config(map={**LIGHT_CHECKPOINT})
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("ERROR")
    yield session
    session.stop()


@pytest.fixture
def cache_dir(tmp_path: Path) -> Path:
    return tmp_path / "cache"
