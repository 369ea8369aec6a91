"""Names and sizes that lie: a refusal at once, and nothing is allocated for what is not there."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from tests.support.logs import fill, open_log
from tests.support.reseal import open_pack, open_segment
from trailmark.errors import DamagedSegment, MissingSegment
from trailmark.log import LocalStorage, StreamLog
from trailmark.records import FrameKind

_LIAR = f"{3:020d}-{2**62:020d}.pack"


@pytest.fixture
def log(tmp_path: Path) -> StreamLog:
    log = open_log(LocalStorage(tmp_path))
    fill(log, 3)
    return log


def _put(tmp_path: Path, log: StreamLog, name: str, size: int = 0) -> None:
    with open(tmp_path / log.directory / name, "wb") as file:
        file.truncate(size)


@pytest.mark.parametrize("size", [0, 2**42])
@pytest.mark.parametrize(
    "ask",
    [
        StreamLog.batches,
        StreamLog.newest,
        StreamLog.time_index,
        lambda log: list(log.read_from()),
        lambda log: list(log.read_backward(2)),
        lambda log: log.trim(1),
        lambda log: log.read(7),
    ],
)
def test_a_pack_that_says_more_batches_than_it_can_hold_is_refused(
    tmp_path: Path, log: StreamLog, ask: Callable[[StreamLog], object], size: int
) -> None:
    _put(tmp_path, log, _LIAR, size)
    with pytest.raises(DamagedSegment, match="says in its name") as caught:
        ask(log)
    assert caught.value.where == f"{log.directory}/{_LIAR}"


def test_a_merge_stops_at_it(tmp_path: Path, log: StreamLog) -> None:
    _put(tmp_path, log, _LIAR)
    stopped_by = log.merge(2).stopped_by
    assert stopped_by is not None
    assert "says in its name" in stopped_by.what


def test_verification_names_it_and_repair_sets_it_aside(tmp_path: Path, log: StreamLog) -> None:
    _put(tmp_path, log, _LIAR)
    (problem,) = log.verify().problems
    assert (problem.trouble, problem.path) == ("damaged", f"{log.directory}/{_LIAR}")
    assert log.repair().is_whole
    assert log.batches() == [0, 1, 2]


def test_repair_keeps_the_segments_of_a_pack_with_a_name_that_lies(
    tmp_path: Path, log: StreamLog
) -> None:
    log.merge(2)
    (pack,) = (tmp_path / log.directory).glob("*.pack")
    pack.rename(pack.with_name(_LIAR))
    assert log.repair().is_whole
    assert log.batches() == [0, 1, 2]


def test_a_sparse_pack_or_segment_of_terabytes_is_damaged(tmp_path: Path, log: StreamLog) -> None:
    _put(tmp_path, log, f"{3:020d}.seg", 2**42)
    _put(tmp_path, log, f"{4:020d}-{900:020d}.pack", 2**42)
    for batch in (3, 4, 500):
        for read in (log.read, log.read_footer):
            with pytest.raises(DamagedSegment, match="trailer"):
                read(batch)
    assert {problem.trouble for problem in log.verify().problems} == {"damaged"}


def test_a_trailer_that_says_a_footer_of_terabytes_is_not_believed(
    tmp_path: Path, log: StreamLog
) -> None:
    path = tmp_path / log.directory / f"{2:020d}.seg"
    trailer = path.read_bytes()[-24:]
    with open(path, "r+b") as file:
        file.truncate(2**42)
        file.seek(-24, 2)
        file.write(trailer)
    for read in (log.read, log.read_footer):
        with pytest.raises(DamagedSegment, match="longer than any"):
            read(2)


def test_the_largest_batch_has_a_batch_after_it_that_is_missing(
    tmp_path: Path, log: StreamLog
) -> None:
    _put(tmp_path, log, f"{2**63 - 2:020d}.seg")
    assert log.newest() == 2**63 - 2
    with pytest.raises(MissingSegment):
        log.read(2**63 - 1)


@pytest.mark.parametrize(
    "entry",
    [
        [0, 16, -8, 1, None, None, 0],
        [0, 16, 2**70, 1, None, None, 0],
        [2**62, 16, 800, 1, None, None, 0],
        [0, -16, 800, 1, None, None, 0],
        [0, 16, 800],
        7,
        None,
    ],
)
def test_an_index_that_lies_is_damaged(tmp_path: Path, log: StreamLog, entry: object) -> None:
    log.merge(2)
    (path,) = (tmp_path / log.directory).glob("*.pack")
    pack = open_pack(path.read_bytes())
    index = pack.described()
    index["segments"][0] = entry
    path.write_bytes(pack.sealed(index))
    with pytest.raises(DamagedSegment):
        open_log(LocalStorage(tmp_path)).read(1)
    assert len(log.verify().problems) == 1


def test_frames_without_end_are_damaged(tmp_path: Path, log: StreamLog) -> None:
    path = tmp_path / log.directory / f"{2:020d}.seg"
    opened = open_segment(path.read_bytes())
    many = replace(opened, frames=((int(FrameKind.LATE), b""),) * 300)
    path.write_bytes(many.sealed())
    with pytest.raises(DamagedSegment, match="more frames"):
        log.read(2)
