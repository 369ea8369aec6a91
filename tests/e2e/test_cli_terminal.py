"""The ``trailmark`` command on a terminal: colours, live pictures, and questions."""

from __future__ import annotations

import json
import os
import pty
import select
import signal
import subprocess
import time
from pathlib import Path

import pytest

from tests.e2e.test_cli import COMMAND, PATIENCE_S, run_command
from tests.support.written import Written, time_orders, write_logs


@pytest.fixture
def logs(tmp_path: Path) -> Written:
    return write_logs(tmp_path / "orders", time_orders(), stop_before=6)


class _Terminal:
    """Runs the command on a terminal of its own."""

    def __init__(self, *arguments: object) -> None:
        self._ours, theirs = pty.openpty()
        environment = {**os.environ, "TERM": "xterm", "COLUMNS": "160", "LINES": "40"}
        environment.pop("NO_COLOR", None)
        self.process = subprocess.Popen(
            [COMMAND, *map(str, arguments)],
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            env=environment,
            start_new_session=True,
        )
        os.close(theirs)
        self.said = ""

    def wait_for(self, text: str) -> None:
        until = time.monotonic() + PATIENCE_S
        while text not in self.said:
            assert time.monotonic() < until, self.said
            self._read(0.1)

    def type(self, text: str) -> None:
        os.write(self._ours, text.encode())

    def interrupt(self) -> int:
        """Presses Ctrl-C again and again: once may come just before it waits for an answer."""
        for _ in range(5):
            self.process.send_signal(signal.SIGINT)
            until = time.monotonic() + PATIENCE_S / 5
            while time.monotonic() < until:
                if self.process.poll() is not None:
                    return self.finish()
                self._read(0.1)
        raise AssertionError(self.said)

    def finish(self) -> int:
        until = time.monotonic() + PATIENCE_S
        while self.process.poll() is None:
            assert time.monotonic() < until, self.said
            self._read(0.1)
        self._read(0.1)
        os.close(self._ours)
        return self.process.returncode

    def _read(self, seconds: float) -> None:
        ready, _, _ = select.select([self._ours], [], [], seconds)
        if ready:
            try:
                self.said += os.read(self._ours, 65536).decode()
            except OSError:
                return  # the other end is closed


def test_a_live_picture_is_drawn_over_itself_until_ctrl_c(logs: Written) -> None:
    terminal = _Terminal("status", logs.path, "--watch", "0.1")
    terminal.wait_for("last recovery")
    first = len(terminal.said)
    while terminal.said.count("last recovery") < 3:
        terminal.wait_for("last recovery")
        terminal._read(0.2)
    terminal.process.send_signal(signal.SIGINT)
    assert terminal.finish() == 0
    assert "Traceback" not in terminal.said
    assert terminal.said[first:].count("\x1b[1A\x1b[2K") >= 10
    assert "\x1b[2J" not in terminal.said, "what was on the screen before stays"


def test_colours_on_a_terminal_and_none_with_no_color(logs: Written) -> None:
    terminal = _Terminal("status", logs.path)
    assert terminal.finish() == 0
    assert "\x1b[1m" in terminal.said
    done = run_command("status", logs.path, env={**os.environ, "NO_COLOR": "1"})
    assert "\x1b" not in done.stdout


@pytest.mark.parametrize(("answer", "batch"), [("yes", 9), ("no", 11)])
def test_truncate_asks_on_a_terminal_and_does_what_is_answered(
    answer: str, batch: int, logs: Written
) -> None:
    terminal = _Terminal("truncate", logs.path, "--to-batch", 9)
    terminal.wait_for('Type "yes" to go on: ')
    assert "batches 10 to 11 will be set aside" in terminal.said
    terminal.type(f"{answer}\n")
    assert terminal.finish() == 0
    assert json.loads(run_command("status", logs.path, "--json").stdout)["last_batch"] == batch


def test_ctrl_c_at_the_question_changes_nothing(logs: Written) -> None:
    before = logs.files()
    terminal = _Terminal("truncate", logs.path, "--to-batch", 9)
    terminal.wait_for('Type "yes" to go on: ')
    assert terminal.interrupt() == 130
    assert "Traceback" not in terminal.said
    assert logs.files() == before
