"""A log on the simulated disk against a list, through everything that can happen to either."""

from __future__ import annotations

import errno
import random
from collections.abc import Callable

from hypothesis import HealthCheck, note, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from tests.support.logs import SECOND, append, open_log, rows_of
from trailmark.errors import BatchGoesBackward, StorageError
from trailmark.log import Segment, StreamLog
from trailmark.records import NO_BATCH, START_OF_LOG, FrameKind, SegmentLink
from trailmark.settings import LogSettings
from trailmark.testing.disk import Crashed, SimulatedDisk

RANDOM_STATE = st.integers(0, 2**32 - 1)


class LogAgainstList(RuleBasedStateMachine):
    """``links`` is the list: what was acknowledged, by batch. Trimmed batches stay in the list.

    A call that was interrupted may or may not have happened. `_settle` looks which, and only the
    answers that the interrupted call allows are accepted.
    """

    disk: SimulatedDisk
    log: StreamLog
    links: list[SegmentLink]
    oldest: int
    #: An interrupted trim may be undone by a power failure, down to what was trimmed before it.
    cannot_come_back_before: int

    @initialize(merge_bytes=st.sampled_from([1, 2_000, 5_000, 2**26]))
    def start(self, merge_bytes: int) -> None:
        self.settings = LogSettings(merge_bytes=merge_bytes)
        self.disk = SimulatedDisk()
        self.links = []
        self.oldest = self.cannot_come_back_before = 0
        self._reopen()

    # What a query does.

    @rule(count=st.integers(0, 4), rows=st.integers(0, 40))
    def append_some(self, count: int, rows: int) -> None:
        for _ in range(count):
            published = append(self.log, len(self.links), self._last(), rows or 3)
            assert published.created
            self.links.append(published.link)

    @precondition(lambda self: self.links)
    @rule(place=st.integers(0, 2**16))
    def append_again(self, place: int) -> None:
        batch = place % len(self.links)
        previous = self.links[batch - 1] if batch else START_OF_LOG
        log = self._another_process()
        try:
            published = append(log, batch, previous, count=50)
        except BatchGoesBackward:
            assert batch < self.oldest
            return
        if batch < self.oldest and published.created:
            # Behind a file that came back it cannot be told. It must not be in the log, as ever.
            assert log.reader.look().start > batch
            return
        assert (published.created, published.link) == (False, self.links[batch])

    @rule(up_to=st.integers(-1, 2**16), smallest_run=st.integers(2, 6))
    def merge(self, up_to: int, smallest_run: int) -> None:
        report = self.log.merge(up_to % (len(self.links) + 1), smallest_run=smallest_run)
        assert report.stopped_by is None

    @rule(before=st.integers(0, 2**16))
    def trim(self, before: int) -> None:
        self._trim(before % (len(self.links) + 3))

    @rule(timestamp_s=st.integers(-5, 500))
    def find(self, timestamp_s: int) -> None:
        found = self.log.time_index().find(timestamp_s * SECOND)
        wanted = max(self.oldest, timestamp_s // 10, 0)
        assert found == (wanted if wanted < len(self.links) else NO_BATCH)

    @rule()
    def repair(self) -> None:
        report = self.log.repair()
        assert report.problems == []
        assert not [action for action in report.actions if action.deed == "set aside"]

    # What happens to the machine.

    @rule()
    def process_is_replaced(self) -> None:
        self._reopen()

    @rule(state=RANDOM_STATE)
    def power_fails(self, state: int) -> None:
        self.disk.crash(random.Random(state))
        self._reopen()
        self._settle()

    @rule(
        act=st.sampled_from(["append", "merge", "trim", "repair", "index"]),
        operations=st.integers(0, 25),
        state=st.none() | RANDOM_STATE,
    )
    def stops_in_the_middle(self, act: str, operations: int, state: int | None) -> None:
        self.disk.stop_after(operations)
        try:
            self._act(act)
        except Crashed:
            note("stopped")
            if state is None:
                self.disk.kill()
            else:
                self.disk.crash(random.Random(state))
        self.disk.relax()
        self._reopen()
        self._settle()

    @rule(
        act=st.sampled_from(["append", "merge", "trim", "repair", "index"]),
        call=st.integers(1, 40),
        code=st.sampled_from([errno.EIO, errno.ENOSPC, errno.EROFS]),
    )
    def call_fails(self, act: str, call: int, code: int) -> None:
        self.disk.fail_on(call, code)
        self._tolerating(lambda: self._act(act))
        self.disk.relax()
        self._settle()

    @rule(act=st.sampled_from(["append", "merge", "repair", "index"]), room=st.integers(0, 3_000))
    def disk_is_full(self, act: str, room: int) -> None:
        self.disk.capacity = room + sum(len(self.disk.content(p)) for p in self.disk.files())
        self._tolerating(lambda: self._act(act))
        self.disk.capacity = None
        self._settle()

    # What must hold at all times.

    @invariant()
    def the_log_holds_what_the_list_holds(self) -> None:
        log = self._another_process()
        expected = self.links[self.oldest :]
        assert log.batches() == [link.batch for link in expected]
        forward = list(log.read_from())
        assert [segment.link for segment in forward] == expected
        backward = list(log.read_backward(log.newest())) if expected else []
        assert [s.link for s in reversed(backward) if isinstance(s, Segment)] == expected
        for segment in forward:
            rows = segment.footer.rows[FrameKind.INPUT]
            assert segment.table(FrameKind.INPUT) == rows_of(segment.batch, rows)
        assert log.verify().problems == []
        for batch in range(len(self.links) + 1):
            is_held = self.oldest <= batch < len(self.links)
            assert self._another_process().contains(batch) == is_held

    def _act(self, act: str) -> None:
        if act == "append":
            self.append_some(1, 3)
        elif act == "merge":
            self.log.merge(len(self.links))
        elif act == "trim":
            self._trim(len(self.links) // 2)
        elif act == "repair":
            self.log.repair()
        else:
            self.log.time_index()

    def _tolerating(self, act: Callable[[], None]) -> None:
        try:
            act()
        except StorageError:
            note("failed")

    def _trim(self, before: int) -> None:
        # Packs that reach over the place stay, so how much goes is for the log to say.
        wanted = min(before, len(self.links) - 1)
        lowest, self.oldest = self.oldest, max(self.oldest, wanted)
        report = self.log.trim(before)
        if self.links:
            assert lowest <= report.oldest <= self.oldest
            self.oldest = report.oldest
        if report.deleted:
            self.cannot_come_back_before = self.oldest

    def _settle(self) -> None:
        """Accept what an interrupted append or trim may have done."""
        log = self._another_process()
        batches = log.batches()
        if batches and batches[-1] == len(self.links):
            # Its writer stopped, perhaps before the last sync: whoever counts on it settles it.
            log.settle(batches[-1])
            self.links.append(log.read(batches[-1]).link)
        if batches:
            assert self.cannot_come_back_before <= batches[0] <= self.oldest
            self.oldest = batches[0]

    def _last(self) -> SegmentLink:
        return self.links[-1] if self.links else START_OF_LOG

    def _reopen(self) -> None:
        self.log = self._another_process()

    def _another_process(self) -> StreamLog:
        return open_log(self.disk.storage(), settings=self.settings)


LogAgainstList.TestCase.settings = settings(
    max_examples=60,
    stateful_step_count=25,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
TestLogAgainstList = LogAgainstList.TestCase
