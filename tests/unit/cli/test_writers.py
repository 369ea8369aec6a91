"""``trailmark writers`` lists who writes and how far, and lets go whom it is told to."""

from __future__ import annotations

import io
import sys
from pathlib import Path

import pytest

import trailmark as tm
from tests.support.streams import ORDERS, SECOND, batch_of, orders
from tests.support.written import Written
from tests.unit.cli.conftest import Run
from trailmark.cli import writers
from trailmark.streams.own_writer import OwnWriter


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def _writer(path: Path, name: str) -> OwnWriter:
    return tm.stream_writer(
        path, ORDERS, name=name, time_column="time", delay="1 second", clock=lambda: 90 * SECOND
    )


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Writer eu is at 11 s, us at 89 s."""
    place = tmp_path / "orders"
    _writer(place, "eu").append(batch_of(orders(1)))
    _writer(place, "us").heartbeat()
    return place


def test_writers_are_listed_with_how_far_they_are(path: Path, run: Run) -> None:
    said = run("writers", path)
    assert (said.code, said.err) == (0, "")
    eu, us = said.out.splitlines()[1:]
    assert eu.split()[:4] == ["eu", "0", "1970-01-01", "00:00:11Z"]
    assert us.split()[:4] == ["us", "-", "1970-01-01", "00:01:29Z"]
    assert run("writers", path, "--json").json["boundaries"]["stream"] == 11 * SECOND
    assert "complete up to    1970-01-01 00:00:11Z; late rows: 0" in run("status", path).out


def test_a_writer_that_is_forgotten_holds_nothing_back(path: Path, run: Run) -> None:
    said = run("writers", path, "--forget", "eu", "--yes")
    assert (said.code, said.out) == (0, f"{path}: nobody waits for writer eu any more.\n")
    assert run("writers", path, "--json").json["boundaries"]["stream"] == 89 * SECOND
    said = run("writers", path, "--forget", "eu", "--yes")
    assert said.code == 2
    assert "There is no writer 'eu' that the boundary of the stream waits for." in said.err
    assert "It waits for us." in said.err


@pytest.mark.parametrize(("answer", "is_done"), [("yes\n", True), ("y\n", False), ("", False)])
def test_it_asks_before(
    answer: str, is_done: bool, path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", _Terminal(answer))
    said = run("writers", path, "--forget", "eu")
    assert said.code == 0
    assert "Should it write again, it counts again" in said.out
    assert ("Nothing was changed." in said.out) is not is_done
    waits_for = run("writers", path, "--json").json["boundaries"]["writers"]
    assert ("eu" in waits_for) is not is_done


def test_a_writer_that_says_something_meanwhile_is_not_forgotten(
    path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    def answer() -> bool:
        _writer(path, "us").append(batch_of(orders(30)))
        for second in (1, 2, 3):
            _writer(path, "us").heartbeat(f"1971-01-01 00:00:0{second}")
        return True

    monkeypatch.setattr(writers, "says_yes", answer)
    monkeypatch.setattr(sys, "stdin", _Terminal())
    said = run("writers", path, "--forget", "us")
    assert said.code == 2
    assert "has just sent a heartbeat" in said.err


def test_a_heartbeat_that_cannot_be_read_is_told(path: Path, run: Run) -> None:
    for file in (path / "heartbeats").glob("us-*"):
        file.write_text("{}")
    for command in ("writers", "status"):
        said = run(command, path)
        assert "cannot be read; the next one replaces it" in said.out + said.err
    assert run("writers", path).code == 1
    assert "Heartbeats that cannot be read: 1" in run("verify", path).out


def test_nobody_can_be_asked_in_a_script(path: Path, run: Run) -> None:
    said = run("writers", path, "--forget", "eu", "--json")
    assert said.code == 2
    assert "Give --yes" in said.err


def test_a_stream_that_nobody_has_written_to_by_name_says_so(tmp_path: Path, run: Run) -> None:
    _writer(tmp_path, "eu")
    assert run("writers", tmp_path).out == f"{tmp_path}: nobody has written under a name\n"


def test_an_operator_has_no_writers(counted: Written, run: Run) -> None:
    said = run("writers", counted.path)
    assert said.code == 2
    assert "which only its own query writes" in said.err
