"""What processes take of a processor."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from subprocess import PIPE

from bench.processor import processor_s, taken_s

_TICKS = os.sysconf("SC_CLK_TCK")


def _put(processes: Path, number: int, parent: int, name: str, *times: int) -> None:
    """As Linux shows a process: its number, its name, and so on."""
    (processes / str(number)).mkdir()
    before, after = "S {} 1 1 0 -1 4194560 9 9 9 9", "20 0 1 0 55"
    text = f"{number} ({name}) {before.format(parent)} {' '.join(map(str, times))} 77 88 {after}"
    (processes / str(number) / "stat").write_text(text)


def test_all_that_a_process_has_started_counts_and_nothing_else(tmp_path: Path) -> None:
    _put(tmp_path, 1, 0, "init", 1000, 1000)
    _put(tmp_path, 20, 1, "driver", 10, 2)
    _put(tmp_path, 30, 20, "java (VM) 1 2", 5000, 600)
    _put(tmp_path, 31, 30, ") R 20", 70_000, 8)
    _put(tmp_path, 40, 1, "another", 900_000, 0)
    ticks = {20: 12, 30: 5_600, 31: 70_008}
    assert processor_s(20, tmp_path) == {each: ticks[each] / _TICKS for each in ticks}
    assert set(processor_s(31, tmp_path)) == {31}


def test_a_process_that_has_ended_takes_nothing_back() -> None:
    assert taken_s({1: 5.0, 2: 100.0}, {1: 5.5, 3: 0.25}) == 0.75


def test_a_process_that_works_is_seen_to_work() -> None:
    before = processor_s(os.getpid())
    code = "import time\nwhile time.process_time() < 0.3: pass\nprint(flush=True)\ninput()"
    with subprocess.Popen([sys.executable, "-c", code], stdin=PIPE, stdout=PIPE) as child:
        assert child.stdout is not None
        child.stdout.readline()
        found = processor_s(os.getpid())
        assert found[child.pid] >= 0.25
        assert taken_s(before, found) >= 0.25
        child.communicate(b"\n")
