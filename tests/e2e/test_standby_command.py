"""``trailmark standby``: any command, run by one of several that wait."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from tests.support.spark_runs import wait_until

_COMMAND = Path(sys.executable).with_name("trailmark")
_PATIENCE_S = 60.0
#: Writes down that it has begun, and that it was asked to end.
_SERVICE = """
trap 'echo ended $NAME >> story; exit 7' TERM
echo began $NAME >> story
while true; do sleep 0.05; done
"""


class _Site:
    """Supervisors of one service, and what it has written down."""

    def __init__(self, root: Path, until_the_end: ExitStack) -> None:
        self.root = root
        self._until_the_end = until_the_end

    def start(
        self, name: str, script: str = _SERVICE, grace: str = "10 seconds"
    ) -> subprocess.Popen[str]:
        arguments = ["--lease", "lease", "--term", "2 seconds", "--name", name, "--grace", grace]
        process = subprocess.Popen(
            [_COMMAND, "standby", *arguments, "--", "sh", "-c", script],
            cwd=self.root,
            env={**os.environ, "NAME": name},
            stderr=subprocess.PIPE,
            text=True,
        )
        self._until_the_end.callback(_end, process)
        return process

    @property
    def story(self) -> list[str]:
        path = self.root / "story"
        return path.read_text().splitlines() if path.exists() else []

    def wait_for(self, line: str) -> None:
        wait_until(line, lambda: line in self.story, _PATIENCE_S)

    def status(self) -> dict[str, object]:
        done = subprocess.run(
            [_COMMAND, "status", "lease", "--json"],
            cwd=self.root,
            check=False,
            capture_output=True,
            timeout=_PATIENCE_S,
        )
        found: dict[str, object] = json.loads(done.stdout)
        return found


def _end(process: subprocess.Popen[str]) -> None:
    if process.poll() is None:
        process.send_signal(signal.SIGCONT)
        process.terminate()
    process.communicate(timeout=_PATIENCE_S)


@pytest.fixture
def site(tmp_path: Path) -> Iterator[_Site]:
    with ExitStack() as until_the_end:
        yield _Site(tmp_path, until_the_end)


def test_the_second_begins_when_the_first_was_killed_and_its_command_is_gone(site: _Site) -> None:
    first = site.start("first")
    site.wait_for("began first")
    second = site.start("second")
    wait_until("it waits", lambda: len(_waiting(site)) == 1, _PATIENCE_S)
    assert _waiting(site)[0]["name"] == "second"
    assert site.story == ["began first"]
    first.kill()
    site.wait_for("began second")
    assert "ended first" not in site.story, "it was killed with the one that had started it"
    second.terminate()
    assert second.wait(_PATIENCE_S) == 7
    assert site.story[-1] == "ended second"


def test_a_signal_is_passed_on_and_the_second_begins_at_once(site: _Site) -> None:
    first = site.start("first")
    site.wait_for("began first")
    second = site.start("second")
    wait_until("it waits", lambda: len(_waiting(site)) == 1, _PATIENCE_S)
    first.terminate()
    assert first.wait(_PATIENCE_S) == 7, "the exit code of the command"
    site.wait_for("began second")
    assert site.story == ["began first", "ended first", "began second"]
    assert second.poll() is None


def test_one_that_was_stopped_for_longer_than_a_term_stops_its_command_and_waits(
    site: _Site,
) -> None:
    first = site.start("first")
    site.wait_for("began first")
    second = site.start("second")
    first.send_signal(signal.SIGSTOP)
    site.wait_for("began second")
    assert "ended first" not in site.story, "nobody could stop it"
    first.send_signal(signal.SIGCONT)
    site.wait_for("ended first")
    wait_until("it waits", lambda: len(_waiting(site)) == 1, _PATIENCE_S)
    second.terminate()
    wait_until("it has it again", lambda: site.story.count("began first") == 2, _PATIENCE_S)
    first.terminate()
    told = first.communicate(timeout=_PATIENCE_S)[1]
    assert sum(" lost by first" in line for line in told.splitlines()) == 1


def test_of_several_that_start_at_once_one_runs_and_a_command_that_ends_ends_it(
    site: _Site,
) -> None:
    names = ("a", "b", "c")
    begun = [site.start(name, "echo began $NAME >> story; sleep 1; exit 3") for name in names]
    codes = [each.wait(_PATIENCE_S) for each in begun]
    assert codes == [3, 3, 3], "each had its turn"
    assert sorted(site.story) == [f"began {name}" for name in names]


def test_what_a_command_has_started_ends_before_another_one_has_its_turn(site: _Site) -> None:
    """Also what does not want to, behind a command that has ended."""
    child = "(trap '' TERM; while true; do echo $NAME >> ticks; sleep 0.01; done) &"
    first = site.start("first", f"{child} sleep 0.5; exit 3", grace="200 ms")
    assert first.wait(_PATIENCE_S) == 3
    ticks = site.root / "ticks"
    written = ticks.read_text()
    assert written
    second = site.start("second")
    site.wait_for("began second")
    assert ticks.read_text() == written
    second.terminate()
    assert second.wait(_PATIENCE_S) == 7


def test_a_closed_terminal_ends_one_that_waits_but_nothing_that_ignores_it(site: _Site) -> None:
    with _begun_with(signal.SIGHUP, signal.SIG_IGN):  # as under nohup
        first = site.start("first")
    site.wait_for("began first")
    with _begun_with(signal.SIGHUP, signal.SIG_DFL):
        second = site.start("second")
    wait_until("it waits", lambda: len(_waiting(site)) == 1, _PATIENCE_S)
    second.send_signal(signal.SIGHUP)
    assert second.wait(_PATIENCE_S) == 128 + signal.SIGHUP
    first.send_signal(signal.SIGHUP)
    first.terminate()
    assert first.wait(_PATIENCE_S) == 7
    assert site.story == ["began first", "ended first"]


@contextmanager
def _begun_with(number: signal.Signals, handler: signal.Handlers) -> Iterator[None]:
    """How processes that are started now take a signal, however these tests were started."""
    before = signal.signal(number, handler)
    try:
        yield
    finally:
        signal.signal(number, before)


def test_what_cannot_be_run_is_told_in_one_line(site: _Site) -> None:
    def told(*arguments: str) -> tuple[int, str]:
        done = subprocess.run(
            [_COMMAND, "standby", *arguments],
            cwd=site.root,
            check=False,
            capture_output=True,
            text=True,
            timeout=_PATIENCE_S,
        )
        return done.returncode, done.stderr.splitlines()[-1]

    began = time.monotonic()
    assert told("--lease", "lease", "--") == (
        2,
        "trailmark standby: There is no command to run. (--) For example: trailmark standby "
        "--lease /shared/orders.lease -- python orders.py",
    )
    code, line = told("--lease", "lease", "--term", "10 ms", "--", "true")
    assert (code, "too short" in line) == (2, True)
    (site.root / "logs").mkdir()
    (site.root / "logs" / "meta.json").write_text("{}")
    code, line = told("--lease", "logs/lease", "--", "true")
    assert (code, "inside of the logs" in line) == (2, True)
    code, _ = told("--lease", "lease", "--", "no-such-command")
    assert code == 127
    assert time.monotonic() - began < _PATIENCE_S


def _waiting(site: _Site) -> list[dict[str, object]]:
    waiting = site.status()["waiting"]
    assert isinstance(waiting, list)
    return [each for each in waiting if each["is_there"]]
