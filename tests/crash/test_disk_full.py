"""A disk that fills up or fails at each single call: a named error, and nothing half done."""

from __future__ import annotations

import errno
from collections.abc import Callable

import pytest

from tests.support.disk import FillingDisk, may_go_untold
from tests.support.lives import assert_nothing_is_half_done, life_of, refusal_of
from trailmark.errors import DiskFull, NoPermission, StorageError
from trailmark.testing.disk import SimulatedDisk

_KINDS = ["overlapping", "time", "pairing", "join", "keyed", "whole"]


# No room


@pytest.mark.parametrize("is_restarted", [False, True], ids=["goes on", "restarted"])
@pytest.mark.parametrize("kind", _KINDS)
def test_a_disk_that_is_full_at_any_write_is_named_and_makes_no_difference(
    kind: str, is_restarted: bool
) -> None:
    writes = _run_unharmed(kind).writes
    assert writes > 8
    for full_at in range(1, writes + 1):
        disk = FillingDisk(full_at=full_at)
        life = life_of(kind, disk)
        refused = 0
        for step in life.steps():
            error = refusal_of(step, DiskFull)
            if error is None:
                continue
            assert "Make room" in error.fix
            refused += 1
            if is_restarted:
                life.query.stop()
            assert_nothing_is_half_done(life)
            disk.capacity = None
            step()
        assert refused == 1, f"write {full_at}"
        life.check()
        life.query.stop()


def _run_unharmed(kind: str) -> FillingDisk:
    disk = FillingDisk()
    life = life_of(kind, disk)
    for step in life.steps():
        step()
    life.query.stop()
    return disk


def test_a_disk_that_stays_full_refuses_again_and_again_and_keeps_what_it_has() -> None:
    life = life_of("overlapping", SimulatedDisk())
    steps = list(life.steps())
    steps[0]()
    disk = life.query.disk
    before = {path: disk.content(path) for path in disk.files()}
    disk.capacity = sum(map(len, before.values())) + 100
    for _ in range(3):
        with pytest.raises(DiskFull):
            steps[1]()
        assert {path: disk.content(path) for path in disk.files()} == before
    disk.capacity = None
    for step in steps[1:]:
        step()
    life.check()
    life.query.stop()


# Calls that fail


def _check_failing_calls(kind: str, code_of: Callable[[int], int], part: slice) -> None:
    """Fails each call in turn; every second time the query goes on in a new process."""
    calls = range(1, _run_unharmed(kind).calls + 1)[part]
    assert len(calls) > 100
    for call in calls:
        code = code_of(call)
        life = life_of(kind, SimulatedDisk())
        life.query.disk.fail_on(call, code)
        refused = 0
        for step in life.steps():
            error = refusal_of(step, StorageError)
            if error is None:
                continue
            assert isinstance(error, NoPermission) == (code == errno.EACCES)
            refused += 1
            if (call // 2 + code) % 2:
                life.query.stop()
            step()
        assert refused <= 1, f"call {call} fails once"
        assert refused or may_go_untold(life.query.disk), life.query.disk.failed
        life.check()
        life.query.stop()


@pytest.mark.parametrize("code", [errno.EIO, errno.EACCES], ids=["EIO", "EACCES"])
def test_a_call_that_fails_wherever_it_is_is_named_and_makes_no_difference(code: int) -> None:
    _check_failing_calls("overlapping", lambda call: code, slice(None))


@pytest.mark.parametrize("part", range(2))
def test_a_call_that_fails_with_several_buckets_and_a_watermark_makes_no_difference(
    part: int,
) -> None:
    _check_failing_calls("time", _one_after_the_other, slice(part, None, 2))


@pytest.mark.parametrize("part", range(2))
def test_a_call_that_fails_with_several_inputs_makes_no_difference(part: int) -> None:
    _check_failing_calls("pairing", _one_after_the_other, slice(part, None, 2))


def _one_after_the_other(call: int) -> int:
    """Each error for four calls: for both parts, in this process and in a new one."""
    return (errno.EIO, errno.EACCES)[call // 4 % 2]
