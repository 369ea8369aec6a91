"""One Spark application, in processes of its own, for the tests that restart queries in it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.spark_java import LIGHT_CHECKPOINT
from tests.support.spark_runs import Application


@pytest.fixture(scope="session")
def application(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Application]:
    """Runs what it is given; the sessions of other tests are not touched by it."""
    directory = tmp_path_factory.mktemp("application")
    with Application(directory, [], conf=LIGHT_CHECKPOINT, serve=True) as application:
        yield application
        application.finish()
