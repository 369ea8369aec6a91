"""Who waits says so, and what the dead have left goes."""

from __future__ import annotations

import os
from pathlib import Path

from tests.support.left_behind import dead_process, left_behind
from trailmark.leases import Holder, Waiting
from trailmark.leases.waiting import Sweeper, all_waiting, say_not_waiting, say_waiting
from trailmark.log import LocalStorage
from trailmark.settings import MINUTE, SECOND


def test_those_that_fall_silent_are_removed_and_others_stay(tmp_path: Path) -> None:
    storage = LocalStorage(tmp_path)
    alive, dead, gone = (Holder(each * 32, each, "host", 1) for each in "adc")
    now_us = 0.0
    sweeper = Sweeper(storage, SECOND, lambda: now_us)
    for each in (alive, dead, gone):
        say_waiting(storage, Waiting(each, 1, "warm"))
    say_not_waiting(storage, gone)
    assert sweeper.sweep() == []
    for beat in range(2, 5):
        now_us += MINUTE / 2
        say_waiting(storage, Waiting(alive, beat, "warm"))
        removed = sweeper.sweep()
        assert removed == ([dead.token] if beat == 4 else [])
    assert all_waiting(storage) == {alive.token: Waiting(alive, 4, "warm")}


def test_what_killed_processes_have_half_written_goes_too(tmp_path: Path) -> None:
    storage = LocalStorage(tmp_path)
    dead = dead_process()
    half = [
        tmp_path / place / left_behind(tmp_path / place, dead) for place in ("terms", "waiting")
    ]
    mine = tmp_path / "terms" / left_behind(tmp_path / "terms", os.getppid())
    Sweeper(storage, SECOND, lambda: 0.0).sweep()
    assert not any(each.exists() for each in half)
    assert mine.exists(), "its process is alive"


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    storage = LocalStorage(tmp_path)
    storage.replace(f"waiting/{'a' * 32}.json", [b"no json"])
    (found,) = all_waiting(storage).values()
    assert found.problem == f"waiting/{'a' * 32}.json cannot be read"
