"""A process that has lost its lease publishes nothing more."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from trailmark.errors import LeaseLost
from trailmark.leases import Fenced, Holder, Lease, Pass, open_lease
from trailmark.log import LocalStorage
from trailmark.settings import SECOND
from trailmark.spark.storages import open_to_write


class _Clock:
    now_us = 0.0

    def __call__(self) -> float:
        return self.now_us


@pytest.fixture
def clock() -> _Clock:
    return _Clock()


def _lease(path: Path, name: str, clock: _Clock) -> Lease:
    storage = open_lease(path)[1]
    return Lease(storage, Holder(name, name, "host", 1), SECOND, now_us=clock)


def test_whoever_wakes_behind_its_successor_publishes_nothing(
    tmp_path: Path, clock: _Clock
) -> None:
    a, b = (_lease(tmp_path / "lease", name, clock) for name in "ab")
    logs = LocalStorage(tmp_path / "logs")
    fenced = Fenced(logs, Pass(str(tmp_path / "lease"), "a", SECOND, now_us=clock))
    with pytest.raises(LeaseLost, match="is not held"):
        fenced.publish("x/0", [b""])
    assert a.take()
    assert not b.take()
    assert fenced.publish("x/1", [b""])
    clock.now_us += 3_600 * SECOND
    assert b.take()
    changes: list[Callable[[], object]] = [
        lambda: fenced.publish("x/2", [b""]),
        lambda: fenced.replace("x/1", [b"changed"]),
        lambda: fenced.delete("x/1"),
        lambda: fenced.recycle("x/1"),
        lambda: fenced.set_aside("x/1"),
        lambda: fenced.clean("x"),
    ]
    for change in changes:
        with pytest.raises(LeaseLost, match="is held by b"):
            change()
    assert [entry.name for entry in fenced.list("x")] == ["1"]
    assert bytes(fenced.read("x/1")) == b""


def test_what_was_given_back_lets_nobody_publish(tmp_path: Path, clock: _Clock) -> None:
    a = _lease(tmp_path / "lease", "a", clock)
    fenced = Fenced(
        LocalStorage(tmp_path / "logs"), Pass(str(tmp_path / "lease"), "a", SECOND, now_us=clock)
    )
    assert a.take()
    assert fenced.publish("x/1", [b""])
    a.release()
    clock.now_us += SECOND
    with pytest.raises(LeaseLost, match="was given back"):
        fenced.publish("x/2", [b""])


def test_it_is_looked_at_four_times_a_term_and_not_at_every_write(
    tmp_path: Path, clock: _Clock
) -> None:
    a = _lease(tmp_path / "lease", "a", clock)
    passed = Pass(str(tmp_path / "lease"), "a", SECOND, now_us=clock)
    fenced = Fenced(LocalStorage(tmp_path / "logs"), passed)
    assert a.take()
    for number in range(100):
        fenced.publish(f"x/{number}", [b""])
    a.release()
    fenced.publish("x/100", [b""])
    clock.now_us += SECOND / 4
    with pytest.raises(LeaseLost):
        fenced.publish("x/101", [b""])


def test_processes_of_an_application_find_its_pass_and_what_is_its_own_is_free(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert open_to_write(str(tmp_path / "logs")).publish("x/0", [b""]), "no lease, no fence"
    passed = Pass(str(tmp_path / "lease"), "a", SECOND, f"{tmp_path}/scratch/")
    monkeypatch.setenv("TRAILMARK_LEASE", passed.to_text())
    assert open_to_write(f"{tmp_path}/scratch/logs").publish("x/0", [b""])
    with pytest.raises(LeaseLost):
        open_to_write(str(tmp_path / "logs")).publish("x/1", [b""])
