"""One Spark session for the tests of a process; everything else is new for every test."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from build_support.kafka import connector_jars
from tests.support.pairing_kind import known_pairings
from tests.support.spark_java import LIGHT_CHECKPOINT, spark_home, submit_arguments

_TESTS = Path(__file__).parent


def pytest_configure() -> None:
    os.environ["PYSPARK_SUBMIT_ARGS"] = submit_arguments()
    os.environ["SPARK_HOME"] = spark_home()
    # A shell starts what runs in its background deaf to Ctrl-C, and so would be all that tests
    # start and interrupt.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(tryfirst=True)  # before the groups are read
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """For several processes (``--dist loadgroup``): which tests stay together, and which go first.

    What several tests share is made once, not once in every process. A session of Spark is the
    exception: its tests are half of the time of all, so each process has one, and takes the next
    module when it is through with one. What takes longest goes first, so that no process is still
    busy with it when the others have nothing left to do.
    """
    for item in items:
        name = _shared_by(item)
        if name is not None:
            item.add_marker(pytest.mark.xdist_group(name))
    items.sort(key=_turn)


#: Modules, or tests of them, that take a minute or more, the longest first.
_LONG = (
    "spark/test_driver_kills.py",
    "spark/test_long_run.py",
    "spark/test_apply_kills.py",
    "spark/test_kafka.py",
    "e2e/test_scripts.py",
    "e2e/test_readme.py",
    "e2e/test_demo.py",
    "crash/test_stream_kills.py",
    "crash/test_union_kills.py",
    "crash/test_standby_processes.py",
    "crash/test_standby_network.py",
)
#: Fixtures that take seconds to make.
_SHARED = ("application", "retrying", "sanitized", "browser", "released", "connect_server")
_LONGEST_FIRST = ("spark", "e2e", "property", "crash", "unit")


def _shared_by(item: pytest.Item) -> str | None:
    fixtures = _fixtures(item)
    shared = next((name for name in _SHARED if name in fixtures), None)
    # Unit tests are many and short: handing them out one by one takes longer than most of them.
    is_by_module = "spark" in fixtures or _part(item) == "unit"
    return item.location[0] if shared is None and is_by_module else shared


def _fixtures(item: pytest.Item) -> Sequence[str]:
    return getattr(item, "fixturenames", ())


def _turn(item: pytest.Item) -> tuple[int, bool, int]:
    module = item.path.relative_to(_TESTS).as_posix()
    part = _part(item)
    return (
        (*_LONG, module).index(module),
        "spark" not in _fixtures(item),
        (*_LONGEST_FIRST, part).index(part),
    )


def _part(item: pytest.Item) -> str:
    """The directory of ``tests`` that it is in."""
    return item.path.relative_to(_TESTS).parts[0]


@pytest.fixture
def pairing_kind() -> Iterator[None]:
    """Pairings are known to all who only have logs, as any operator of the registry is."""
    with known_pairings():
        yield


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """Spark as it comes, but for what keeps it quick, quiet and inside its own directory, and for
    its connector to Kafka, which a session cannot get later."""
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
        .config("spark.jars", ",".join(connector_jars()))
        .config(map={**LIGHT_CHECKPOINT})
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("ERROR")
    yield session
    session.stop()


@pytest.fixture(scope="module")
def s3_endpoint() -> Iterator[str]:
    from tests.support.object_store import s3_server  # only who uses one waits for its import

    with s3_server() as endpoint:
        yield endpoint


@pytest.fixture
def s3(s3_endpoint: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """An S3 server is what the usual variables point at."""
    from tests.support.object_store import use_s3

    use_s3(s3_endpoint, monkeypatch)


@pytest.fixture
def s3_url(s3: None) -> str:
    """A URL in an empty bucket of it."""
    from tests.support.object_store import new_bucket

    return new_bucket()


@pytest.fixture(scope="module")
def azure_endpoint(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    from tests.support.azure import azure_server, why_there_is_none

    reason = why_there_is_none()
    if reason:
        pytest.skip(reason)
    with azure_server(tmp_path_factory.mktemp("azure")) as endpoint:
        yield endpoint


@pytest.fixture
def azure_url(azure_endpoint: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """A URL in an empty container of an emulator, which the usual variables point at."""
    from tests.support.azure import new_container, use_azure

    use_azure(azure_endpoint, monkeypatch)
    return new_container(azure_endpoint)


@pytest.fixture
def cache_dir(tmp_path: Path) -> Path:
    return tmp_path / "cache"


@pytest.fixture
def other_trailmark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """PYTHONPATH names another Trailmark, which cannot be imported."""
    package = tmp_path / "other" / "trailmark"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("raise ImportError('the other one')\n")
    monkeypatch.setenv("PYTHONPATH", str(package.parent))
