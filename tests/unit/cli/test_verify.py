"""``trailmark verify`` prints every problem with its file and with what to do next."""

from __future__ import annotations

import io
import re
import sys

import pytest

from tests.support.written import Written
from tests.unit.cli.conftest import Run
from trailmark.cli import main


def test_whole_logs_give_code_0(counted: Written, run: Run) -> None:
    said = run("verify", counted.path)
    assert (said.code, said.err) == (0, "")
    assert said.out.startswith(f"{counted.path}: whole (")
    assert f"{4 * len(counted.reports)} segments" in said.out


def test_a_flipped_byte_gives_code_1_the_file_and_the_next_step(counted: Written, run: Run) -> None:
    name = f"out/00001/{counted.newest:020d}.seg"
    counted.flip(name)
    said = run("verify", counted.path)
    assert said.code == 1
    first, what, following, last = said.out.splitlines()
    assert first == f"{name}: damaged"
    assert f"Batch {counted.newest}: " in what
    assert f"trailmark truncate {counted.path} --to-batch {counted.newest - 1}" in following
    assert "1 problem (" in last


def test_all_problems_are_in_the_json(timed: Written, run: Run) -> None:
    (timed.path / f"in/00000/{9:020d}.seg").unlink()
    timed.flip(f"out/00000/{4:020d}.seg")
    timed.flip(f"watermark/{5:020d}.json", 5)
    said = run("verify", timed.path, "--json")
    assert said.code == 1
    assert said.json["is_whole"] is False
    found = {(each["trouble"], each["stream"], each["batch"]) for each in said.json["findings"]}
    assert found == {
        ("missing", "input", 9),
        ("damaged", "output", 4),
        ("damaged", None, None),
    }
    assert all(each["fix"] for each in said.json["findings"])


def test_a_damaged_description_gives_code_1(counted: Written, run: Run) -> None:
    counted.flip("meta.json", 40)
    said = run("verify", counted.path)
    assert said.code == 1
    assert said.out.startswith("meta.json: damaged\n")


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_progress_goes_to_a_terminal_on_stderr_and_is_wiped(
    counted: Written, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    terminal = _Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    assert main(["verify", str(counted.path)]) == 0
    said = terminal.getvalue()
    assert re.search(r"verifying snap/00001 .*5/6.* kB read", said)
    assert said.endswith("\x1b[1A\x1b[2K"), "the line is wiped"
    assert "verifying" not in capsys.readouterr().out
