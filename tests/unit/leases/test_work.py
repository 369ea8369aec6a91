"""What the active process says that it works on, and what is read of that."""

from __future__ import annotations

import pytest

from trailmark.leases import Work, boot_us, read_work, say_work
from trailmark.leases.waiting import Sweeper
from trailmark.log.json_text import dump_guarded
from trailmark.testing.disk import SimulatedDisk

_WORK = [Work("/data/a", None, "boot 1 2"), Work("s3://b/c", "/cache", "boot 1 3")]


def test_what_was_said_is_read() -> None:
    storage = SimulatedDisk().storage()
    assert read_work(storage) == []
    say_work(storage, _WORK)
    assert read_work(storage) == _WORK
    say_work(storage, _WORK[:1])
    assert read_work(storage) == _WORK[:1]
    Sweeper(storage, 1_000_000, boot_us).sweep()
    assert read_work(storage) == _WORK[:1]


_STRANGE: list[dict[str, object]] = [
    {},
    {"operators": 7},
    {"operators": [7]},
    {"operators": [["a", None]]},
    {"operators": [["a", 1, "b"]]},
    {"operators": [[None, None, "b"]]},
]


@pytest.mark.parametrize("body", _STRANGE)
def test_what_is_nothing_of_the_kind_is_nothing_to_follow(body: dict[str, object]) -> None:
    storage = SimulatedDisk().storage()
    storage.replace("work/operators.json", [dump_guarded(body, "work")])
    assert read_work(storage) == []


def test_a_file_that_was_cut_off_is_nothing_to_follow() -> None:
    storage = SimulatedDisk().storage()
    storage.replace("work/operators.json", [b"{"])
    assert read_work(storage) == []
