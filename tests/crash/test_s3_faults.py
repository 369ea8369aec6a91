"""An object store whose answers get lost, late, refused and cut: exactly once all the same."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from tests.support.object_store import new_bucket, s3_server, use_s3
from tests.support.s3_cases import LIVES, run_planned, run_s3_case
from tests.support.s3_proxy import LOST, Fault, Proxy, proxy_before
from tests.support.seeds import seeds
from trailmark.errors import SettingError, StorageError
from trailmark.log import Storage, open_storage
from trailmark.log.storage.object_store import ObjectStorage


@pytest.fixture(scope="module")
def running() -> Iterator[Proxy]:
    with s3_server() as endpoint, proxy_before(endpoint) as proxy:
        yield proxy


@pytest.fixture
def proxy(running: Proxy, monkeypatch: pytest.MonkeyPatch) -> Proxy:
    use_s3(running.endpoint, monkeypatch)
    running.begin(None)
    return running


@pytest.fixture
def storage(proxy: Proxy) -> Storage:
    return open_storage(new_bucket())


@dataclass
class At:
    """One request meets a fault."""

    place: int
    fault: Fault

    def __call__(self, number: int, method: str) -> Fault | None:
        del method
        return self.fault if number == self.place else None


@pytest.mark.parametrize("fault", list(Fault))
def test_what_was_put_is_ours_whatever_became_of_the_answer(
    proxy: Proxy, storage: Storage, fault: Fault
) -> None:
    proxy.begin(At(1, fault))
    assert storage.publish("in/a", [b"ours", memoryview(b" alone")]) is True
    proxy.begin(At(1, fault))
    assert storage.publish("in/a", [b"ours", b" not"]) is False, "of another size"
    proxy.begin(At(1, fault))
    assert storage.publish("in/a", [b"else's", b" alone"[:4]]) is False, "of the same size"
    assert bytes(storage.read("in/a")) == b"ours alone"


@pytest.mark.parametrize("fault", list(Fault))
def test_every_other_request_is_repeated_whatever_became_of_it(
    proxy: Proxy, storage: Storage, fault: Fault
) -> None:
    def meets(place: int = 1) -> None:
        proxy.begin(At(place, fault))

    meets()
    storage.replace("in/x", [b"x" * 100_000])
    meets()
    assert bytes(storage.read("in/x")) == b"x" * 100_000
    meets()
    assert bytes(storage.read_tail("in/x", 10)[0]) == b"x" * 10
    meets()
    assert storage.size("in/x") == 100_000
    meets()
    assert [entry.name for entry in storage.list("in")] == ["x"]
    meets()
    assert storage.directories("") == ["in"]
    for place in range(1, 5):
        meets(place)
        assert storage.set_aside("in/x") == "aside/in/x"
        storage.replace("in/x", [b"x" * 100_000])
    meets()
    storage.delete("in/x")
    assert not storage.exists("in/x")


@pytest.mark.parametrize(("kind", "apart"), [("job", 3), ("log", 9), ("stream", 25), ("query", 29)])
def test_the_answer_to_any_request_may_be_lost(proxy: Proxy, kind: str, apart: int) -> None:
    """To some of them, all over a life; `make soak-s3` tries the others."""
    run_planned(proxy, kind, None)
    requests = proxy.requests
    assert requests > 4 * apart
    for place in range(1, requests + 1, apart):
        run_planned(proxy, kind, At(place, LOST[place % len(LOST)]))


@pytest.mark.parametrize("kind", LIVES)
def test_random_faults_lose_nothing_and_double_nothing(proxy: Proxy, kind: str) -> None:
    met = sum(run_s3_case(proxy, kind, seed) for seed in seeds(2))
    assert met > 0


def test_a_put_that_takes_too_long_is_sent_again_and_compared(
    proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = new_bucket()
    monkeypatch.setenv("AWS_TIMEOUT", "500 ms")
    monkeypatch.setattr(proxy, "delay_seconds", 1.5)
    impatient = open_storage(url)
    proxy.begin(At(1, Fault.DELAYED))
    assert impatient.publish("in/a", [b"ours"]) is True
    assert proxy.requests > 1
    proxy.begin(lambda number, method: Fault.DELAYED if method == "PUT" else None)
    with pytest.raises(StorageError, match="Could not publish"):
        impatient.publish("in/b", [b"ours"])
    proxy.begin(None)
    assert impatient.publish("in/b", [b"ours"]) is True, "the next attempt decides"


def test_a_put_may_take_minutes_and_variables_say_how_long(
    proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    def options() -> dict[str, object]:
        storage = open_storage("s3://bucket/prefix")
        assert isinstance(storage, ObjectStorage)
        return dict(storage._store.client_options or {})  # type: ignore[union-attr]

    assert options()["timeout"] == "5 minutes"
    monkeypatch.setenv("AWS_TIMEOUT", "20 minutes")
    assert options() == {
        "allow_http": "true",
        "connect_timeout": "10 seconds",
        "timeout": "20 minutes",
    }


def test_variables_say_how_often_a_request_is_repeated(
    proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = new_bucket()
    proxy.begin(lambda number, method: Fault.THROTTLED)
    for most in (0, 2):
        monkeypatch.setenv("AWS_MAX_RETRIES", str(most))
        proxy.begin(proxy.plan)
        with pytest.raises(StorageError):
            open_storage(url).exists("in/a")
        assert proxy.requests == 2 * (1 + most), "all of it is tried once more"
    monkeypatch.setenv("AWS_MAX_RETRIES", "1000")
    monkeypatch.setenv("AWS_RETRY_TIMEOUT", "300 ms")
    proxy.begin(proxy.plan)
    with pytest.raises(StorageError):
        open_storage(url).exists("in/a")
    assert proxy.requests < 20, "for so long, and no longer"


@pytest.mark.parametrize(
    ("name", "value"),
    [("AWS_MAX_RETRIES", "-1"), ("AWS_MAX_RETRIES", "often"), ("AWS_RETRY_TIMEOUT", "long")],
)
def test_retries_that_are_misspelt_are_refused_by_name(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str
) -> None:
    monkeypatch.setenv(name, value)
    with pytest.raises(SettingError, match=name):
        open_storage("s3://bucket/prefix")
