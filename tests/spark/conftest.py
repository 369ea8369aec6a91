"""What tests on Spark share: one application for those that restart queries in it, and silence from
the queries of other tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from tests.support.spark_java import LIGHT_CHECKPOINT
from tests.support.spark_runs import Application
from trailmark.spark.internals import wait_for_events

#: Far more than listeners take.
_PATIENCE_MS = 60_000


@pytest.fixture(scope="session")
def application(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Application]:
    """Runs what it is given; the sessions of other tests are not touched by it."""
    directory = tmp_path_factory.mktemp("application")
    with Application(directory, [], conf=LIGHT_CHECKPOINT, serve=True) as application:
        yield application
        application.finish()


@pytest.fixture
def few_partitions(spark: SparkSession) -> Iterator[None]:
    """Spark's own operators take two hundred otherwise, and as long as these."""
    name = "spark.sql.shuffle.partitions"
    spark.conf.set(name, "2")
    yield
    spark.conf.unset(name)


@pytest.fixture(autouse=True)
def nothing_left_to_tell(request: pytest.FixtureRequest) -> None:
    """Spark tells of a batch when its query has ended already: a listener that is added then hears
    of the test before."""
    if "spark" in request.fixturenames:
        assert wait_for_events(request.getfixturevalue("spark"), _PATIENCE_MS)
