"""A log on the simulated disk, stopped at every single operation, and what is left of it."""

from __future__ import annotations

import errno
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import pytest

from tests.support.disk import may_go_untold
from tests.support.logs import append, open_log, rows_of
from trailmark.errors import LogError, StorageError
from trailmark.log import Appending, Segment, StreamLog
from trailmark.records import START_OF_LOG, Fingerprint, FrameKind, SegmentLink
from trailmark.settings import Durability
from trailmark.testing.disk import REPEATABLE, Crashed, SimulatedDisk


@dataclass
class Story:
    """A life of a log, and what it was told is safe."""

    acknowledged: list[SegmentLink] = field(default_factory=list)
    merged_up_to: int = -1
    trimmed_before: int = 0

    def last(self) -> SegmentLink:
        return self.acknowledged[-1] if self.acknowledged else START_OF_LOG

    def append(self, log: StreamLog) -> None:
        published = append(log, len(self.acknowledged), self.last())
        assert published.created
        self.acknowledged.append(published.link)

    def live(self, log: StreamLog) -> None:
        for _ in range(4):
            self.append(log)
        log.time_index()
        log.merge(2)
        self.merged_up_to = 2
        self.append(log)
        self.append(log)
        log.merge(4)
        self.merged_up_to = 4
        self.trimmed_before = 3
        log.trim(3)
        self.append(log)
        self.trimmed_before = 6
        log.trim(6)  # a pack and a segment: behind a mark
        self.append(log)


def lives(durability: Durability) -> Iterator[tuple[int, SimulatedDisk, Story]]:
    """The same life, ended after every number of operations."""
    whole = SimulatedDisk()
    Story().live(open_log(whole.storage(durability)))
    for operations in range(whole.operations):
        disk, story = SimulatedDisk(), Story()
        disk.stop_after(operations)
        with pytest.raises(Crashed):
            story.live(open_log(disk.storage(durability)))
        yield operations, disk, story


def power_failure(disk: SimulatedDisk, rng: random.Random) -> None:
    disk.crash(rng)


def process_kill(disk: SimulatedDisk, rng: random.Random) -> None:
    del rng
    disk.kill()


def check_nothing_lost(disk: SimulatedDisk, story: Story) -> None:
    log = open_log(disk.storage())
    batches = log.batches()
    assert log.verify().problems == []
    known = len(story.acknowledged)
    assert set(range(story.trimmed_before, known)) <= set(batches)
    assert max(batches, default=-1) in (known - 1, known)
    for segment in log.read_from():
        assert segment.table(FrameKind.INPUT) == rows_of(segment.batch)
        if segment.batch < known:
            assert segment.link == story.acknowledged[segment.batch]


def check_it_goes_on(disk: SimulatedDisk) -> None:
    log = open_log(disk.storage())
    assert log.repair().problems == []
    assert not [path for path in disk.files() if path.endswith(".tmp")]
    assert not [path for path in disk.files() if path.startswith("aside/")]
    newest = log.newest()
    previous = log.read(newest).link if newest >= 0 else START_OF_LOG
    assert append(log, newest + 1, previous).created
    log.merge(newest + 1)
    assert log.verify().problems == []
    assert log.repair().problems == []
    assert [e.batch for e in log.time_index().entries] == log.batches()


@pytest.mark.parametrize("failure", [power_failure, process_kill])
def test_what_was_acknowledged_survives_a_stop_at_every_operation(
    failure: Callable[[SimulatedDisk, random.Random], None],
) -> None:
    for variant in range(4):
        for operations, disk, story in lives(Durability.SYNCED):
            failure(disk, random.Random(f"{operations}/{variant}"))
            check_nothing_lost(disk, story)
            check_it_goes_on(disk)
            check_nothing_lost_of(disk, story)


def check_nothing_lost_of(disk: SimulatedDisk, story: Story) -> None:
    held = {segment.batch: segment.link for segment in open_log(disk.storage()).read_from()}
    for link in story.acknowledged[story.trimmed_before :]:
        assert held[link.batch] == link


def test_what_was_acknowledged_unsynced_survives_a_kill_at_every_operation() -> None:
    for _, disk, story in lives(Durability.UNSYNCED):
        disk.kill()
        check_nothing_lost(disk, story)
        check_it_goes_on(disk)


def test_unsynced_segments_may_be_lost_or_torn_but_are_never_read_wrongly() -> None:
    lost = torn = 0
    for variant in range(4):
        for operations, disk, story in lives(Durability.UNSYNCED):
            disk.crash(random.Random(f"{operations}/{variant}"))
            log = open_log(disk.storage())
            for link in story.acknowledged[story.trimmed_before :]:
                found = read_or_none(log, link.batch)
                is_listed = log.contains(link.batch)
                lost += not is_listed
                torn += is_listed and found is None
                assert found is None or found.link == link
                # What a merge has touched is synced, whatever the setting.
                assert found is not None or link.batch > story.merged_up_to
            log.repair()
            for batch in log.batches():
                segment = read_or_none(log, batch)
                if segment is not None:
                    assert segment.table(FrameKind.INPUT) == rows_of(batch)
    assert lost > 10, "the simulation loses segments"
    assert torn > 10, "the simulation tears segments"


def read_or_none(log: StreamLog, batch: int) -> Segment | None:
    try:
        return log.read(batch)
    except LogError:
        return None


def test_repair_leaves_a_torn_unsynced_log_that_can_go_on_or_says_why_not() -> None:
    went_on = 0
    for operations, disk, _ in lives(Durability.UNSYNCED):
        disk.crash(random.Random(operations))
        log = open_log(disk.storage())
        report = log.repair()
        if report.problems:
            # A hole: whoever decides to go on, does so from before it.
            first = min(problem.batch for problem in report.problems)
            assert log.set_aside_after(first - 1).problems == []
        newest = log.newest()
        if newest < 0:
            # Nothing is left. Whoever decides to begin anew has to say so: there may be a mark.
            assert log.set_aside_after(-1).problems == []
        previous = log.read(newest).link if newest >= 0 else START_OF_LOG
        assert append(log, newest + 1, previous).created
        assert log.verify().problems == []
        assert log.batches()[-1] == newest + 1
        went_on += 1
    assert went_on > 50


@pytest.mark.parametrize("code", [errno.EIO, errno.ENOSPC, errno.EACCES])
def test_a_failure_of_every_single_call_is_told_and_harms_nothing(code: int) -> None:
    for call in range(1, calls_of_a_life() + 1):
        disk, story = SimulatedDisk(), Story()
        disk.fail_on(call, code)
        is_told = is_refused(disk, story)
        assert is_told or may_go_untold(disk), disk.failed
        check_nothing_lost(disk, story)
        check_it_goes_on(disk)


@pytest.mark.parametrize("code", [None, errno.EIO, errno.ETIMEDOUT])
def test_an_answer_that_is_lost_at_any_call_harms_nothing(code: int | None) -> None:
    for call in range(1, calls_of_a_life() + 1):
        disk, story = SimulatedDisk(), Story()
        disk.lose_answer(call, code)
        is_told = is_refused(disk, story)
        assert disk.failed is not None
        name, _ = disk.failed
        assert not is_told or name != "link", "what is there is found out"
        assert not is_told or name not in REPEATABLE or code is not None, disk.failed
        check_nothing_lost(disk, story)
        check_it_goes_on(disk)


def calls_of_a_life() -> int:
    whole = SimulatedDisk()
    Story().live(open_log(whole.storage()))
    return whole.calls


def is_refused(disk: SimulatedDisk, story: Story) -> bool:
    try:
        story.live(open_log(disk.storage()))
    except StorageError:
        return True
    return False


def test_a_disk_that_fills_up_at_any_byte_harms_nothing_and_goes_on_with_more_room() -> None:
    whole = SimulatedDisk()
    Story().live(open_log(whole.storage()))
    needed = sum(len(whole.content(path)) for path in whole.files())
    told = 0
    for capacity in range(0, needed * 2, 97):
        disk, story = SimulatedDisk(capacity=capacity), Story()
        try:
            story.live(open_log(disk.storage()))
        except StorageError:
            told += 1
        disk.capacity = None
        check_nothing_lost(disk, story)
        check_it_goes_on(disk)
    assert told > 20


def test_appends_under_way_in_the_background_leave_no_hole_when_power_fails() -> None:
    for operations in range(60):
        disk = SimulatedDisk()
        log = open_log(disk.storage())
        disk.stop_after(operations)
        acknowledged = append_in_background(log, 8)
        log.close()
        disk.crash(random.Random(operations))
        survived = [segment.link for segment in open_log(disk.storage()).read_from()]
        assert survived[: len(acknowledged)] == acknowledged
        assert [link.batch for link in survived] == list(range(len(survived)))


def append_in_background(log: StreamLog, batches: int) -> list[SegmentLink]:
    previous: SegmentLink | Appending = START_OF_LOG
    under_way: list[Appending] = []
    for batch in range(batches):
        previous = log.begin_append(
            batch,
            [(FrameKind.INPUT, rows_of(batch))],
            previous=previous,
            fingerprint=Fingerprint(3, batch),
        )
        under_way.append(previous)
    acknowledged = []
    for appending in under_way:
        try:
            acknowledged.append(appending.result().link)
        except Crashed:
            continue
    return acknowledged


def test_a_loser_of_a_race_can_rely_on_the_winner_after_a_power_failure() -> None:
    """The winner stops anywhere; whoever finds its segment and says so must not be made a liar."""
    for operations in range(20):
        for variant in range(5):
            disk = SimulatedDisk()
            disk.stop_after(operations)
            try:
                append(open_log(disk.storage()), 0, START_OF_LOG)
            except Crashed:
                disk.kill()
            disk.relax()
            told = append(open_log(disk.storage()), 0, START_OF_LOG, count=5)
            disk.crash(random.Random(f"{operations}/{variant}"))
            assert open_log(disk.storage()).read(0).link == told.link
