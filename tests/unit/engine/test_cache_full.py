"""A cache without room costs time and nothing else."""

from __future__ import annotations

import errno
import fcntl
import logging
import os
import random
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.followed import Followed
from tests.support.orders import count_case, random_orders, random_timed_orders, time_case
from trailmark.checkpoint.policy import Continuous, NoCheckpoint
from trailmark.engine import BatchReport


class Allocations:
    """Stands before ``posix_fallocate``: counts the calls for files of a cache, and can refuse."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.calls = 0
        self.last_granted: int | None = None
        self.only = ""
        self._allocate = os.posix_fallocate
        monkeypatch.setattr(os, "posix_fallocate", self)

    def __call__(self, descriptor: int, offset: int, length: int) -> None:
        grows = length > os.fstat(descriptor).st_size
        name = os.path.basename(os.readlink(f"/proc/self/fd/{descriptor}"))
        if grows and name.startswith(self.only):
            self.calls += 1
            if self.last_granted is not None and self.calls > self.last_granted:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        self._allocate(descriptor, offset, length)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "cache"


@pytest.fixture
def allocations(monkeypatch: pytest.MonkeyPatch) -> Allocations:
    return Allocations(monkeypatch)


def _growing_run(root: Path) -> Followed:
    """So many windows and strings that every region has to grow."""
    rng = random.Random(3)
    batches = random_timed_orders(rng, batches=3, rows=900, items=600, step_us=30_000_000)
    case = time_case(batches, size=4_000_000, slide=2_000_000, delay=100_000_000)
    return Followed(case, Continuous(q=5_000), cache_root=root)


def _files(root: Path) -> list[str]:
    return sorted(path.name for path in root.rglob("*") if path.is_file())


def _assert_released(root: Path) -> None:
    (directory,) = root.glob("*/00000")
    descriptor = os.open(directory, os.O_RDONLY)
    # Whoever does without the cache does not hold it.
    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    os.close(descriptor)


@pytest.mark.parametrize("recovers", [False, True], ids=["live", "recovering"])
def test_wherever_the_room_ends_results_stay_exact(
    tmp_path: Path, allocations: Allocations, caplog: pytest.LogCaptureFixture, recovers: bool
) -> None:
    begun = _growing_run(tmp_path / "unused")
    if recovers:
        begun.query.cache_root = None
        begun.run(2)  # elsewhere, so that the first thing to be done here is to recover
    counted = begun.copy()
    counted.query.cache_root = tmp_path / "counted"
    counted.run()
    total = allocations.calls
    assert total >= 8, "six regions are made, and grow"
    for granted in range(total):
        root = tmp_path / f"cache {granted}"
        run = begun.copy()
        run.query.cache_root = root
        allocations.calls, allocations.last_granted = 0, granted
        caplog.clear()
        with caplog.at_level(logging.WARNING, logger="trailmark"):
            run.run()
        (warning,) = [record.getMessage() for record in caplog.records]
        assert "bucket 0 works without its cache: No room for" in warning
        assert _files(root) == ["full"], "what was begun is not left lying about"
        _assert_released(root)


def test_a_batch_that_is_through_is_answered_though_its_table_has_no_room(
    root: Path, allocations: Allocations
) -> None:
    """The ledger takes the batch in after the commit point, and may have to grow for it."""
    batches = random_orders(random.Random(4), batches=180, rows=2, items=3)
    run = Followed(count_case(batches, size=1_000), NoCheckpoint(), cache_root=root)
    allocations.only, allocations.last_granted = "ledger", 1
    reports: list[BatchReport] = [report for (report,) in run.steps()]
    (through,) = [report.batch for report in reports if report.was_logged]
    recovered = [report.batch for report in reports if report.recovery is not None]
    assert recovered == [through + 1], "from then on it keeps a table of its own"
    _assert_released(root)


def test_a_token_that_finds_no_room_costs_a_recovery(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    batches = random_orders(random.Random(5), batches=6, rows=20, items=9)
    run = Followed(count_case(batches), Continuous(), cache_root=root)
    run.run(2)
    replace = os.replace

    def refuse(*arguments: object, **options: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "replace", refuse)
    (report,) = run.step()
    assert not report.was_logged
    monkeypatch.setattr(os, "replace", replace)
    assert "token" not in _files(root)
    assert "token.new" not in _files(root)
    run.query.stop()
    (report,) = run.step()
    assert report.recovery is not None
    run.query.stop()
    (report,) = run.step()
    assert report.recovery is None
    run.run()


# A real file system without room


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system in memory with room for a table of nothing and little else."""
    place = tmp_path / "small"
    place.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=256k,mode=700", "none", str(place)]
    if os.geteuid() != 0 or subprocess.run(command, check=False, capture_output=True).returncode:
        pytest.skip("a file system cannot be mounted here")
    yield place
    subprocess.run(["umount", "-l", str(place)], check=True)


def test_a_table_that_outgrows_a_real_file_system_moves_into_private_memory(
    small_disk: Path,
) -> None:
    run = _growing_run(small_disk / "cache")
    run.run()
    assert _files(small_disk) == ["full"]
    table = run.query.open()[0].state()
    assert table is not None
    assert table.memory.directory is None
    run.query.stop()


def test_a_real_file_system_that_was_too_small_is_not_tried_again_and_again(
    small_disk: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Each batch in a process of its own, as on Spark."""
    batches = random_timed_orders(random.Random(3), batches=6, rows=400, items=400)
    case = time_case(batches, size=4_000_000, slide=2_000_000, delay=100_000_000)
    run = Followed(case, Continuous(q=5_000), cache_root=small_disk / "cache")
    whys = []
    with caplog.at_level(logging.WARNING, logger="trailmark"):
        for (report,) in run.steps():
            run.query.stop()
            whys.append(report.recovery and report.recovery.why)
    warnings = [record.getMessage() for record in caplog.records]
    assert len([text for text in warnings if "works without its cache" in text]) == 1
    assert whys[-2:] == ["there is no room in the cache"] * 2


@pytest.mark.parametrize("left", [0, 4096, 8192, 16_384, 32_768, 65_536])
def test_a_real_file_system_that_fills_up_between_batches_harms_nothing(
    small_disk: Path, left: int
) -> None:
    batches = random_orders(random.Random(6), batches=8, rows=20, items=9)
    run = Followed(count_case(batches), Continuous(), cache_root=small_disk / "cache")
    run.run(2)
    filler = small_disk / "filler"
    status = os.statvfs(small_disk)
    with filler.open("wb") as file:
        os.posix_fallocate(file.fileno(), 0, max(1, status.f_bavail * status.f_frsize - left))
    for _ in range(4):
        run.step()
        run.query.stop()
    filler.unlink()
    run.step()
    run.query.stop()
    (report,) = run.step()
    assert report.recovery is None, "with room again the cache is in use again"
    run.query.stop()
