"""The files of a log that was trimmed, and what it must hold then."""

from __future__ import annotations

from collections.abc import Iterable

from tests.support.harm import bring_back
from tests.support.logs import fill, open_log
from trailmark.log import Segment, StreamLog
from trailmark.records import SegmentLink
from trailmark.testing.disk import SimulatedDisk


def segment_file(batch: int) -> str:
    return f"in/00003/{batch:020d}.seg"


def pack_file(first: int, last: int) -> str:
    return f"in/00003/{first:020d}-{last:020d}.pack"


def mark_file(batch: int) -> str:
    return f"in/00003/{batch:020d}.trim"


def files_of(disk: SimulatedDisk) -> list[str]:
    """Segments and packs, then marks, of the log; not what was set aside."""
    files = [path for path in disk.files() if path.startswith("in/00003/0")]
    return sorted(files, key=lambda path: (path.endswith(".trim"), path))


def trimmed(
    back: Iterable[int], *, batches: int = 10, before: int = 6
) -> tuple[SimulatedDisk, StreamLog, list[SegmentLink]]:
    """A log that was trimmed, and of what was deleted some batches have come back."""
    disk = SimulatedDisk()
    links = fill(open_log(disk.storage()), batches)
    earlier = disk.copy()
    open_log(disk.storage()).trim(before)
    bring_back(disk, earlier, map(segment_file, back))
    return disk, open_log(disk.storage()), links


def assert_holds(disk: SimulatedDisk, links: list[SegmentLink], first: int) -> None:
    """The log is whole and holds the batches from the first on, whoever looks at it and how."""
    log = open_log(disk.storage())
    expected = links[first:]
    assert log.batches() == [link.batch for link in expected]
    assert (log.oldest(), log.newest()) == (expected[0].batch, expected[-1].batch)
    assert [segment.link for segment in log.read_from()] == expected
    backward = list(log.read_backward(log.newest()))
    assert [s.link for s in backward if isinstance(s, Segment)] == expected[::-1]
    assert len(backward) == len(expected)
    assert log.verify().problems == []
    assert [entry.batch for entry in log.time_index().entries] == log.batches()
    for link in links:
        assert open_log(disk.storage()).contains(link.batch) == (link in expected)
