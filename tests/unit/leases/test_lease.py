"""One lease and those who want it, call by call, by clocks that a test sets."""

from __future__ import annotations

import errno
from dataclasses import dataclass, field

import pytest

from trailmark.errors import SettingError, StorageError
from trailmark.leases import Holder, Lease, check_term, newest_term
from trailmark.settings import SECOND
from trailmark.testing.disk import SimulatedDisk


@dataclass
class _World:
    disk: SimulatedDisk = field(default_factory=SimulatedDisk)
    now_us: float = 0.0

    def process(self, name: str, speed: float = 1.0) -> Lease:
        def clock() -> float:
            return len(name) * 1e15 + self.now_us * speed

        holder = Holder(name, name, "host", 1)
        return Lease(self.disk.storage(), holder, SECOND, now_us=clock, clock=lambda: 0)


@pytest.fixture
def world() -> _World:
    return _World()


def test_the_first_one_takes_it_and_others_wait_for_a_whole_term_of_silence(world: _World) -> None:
    a, other = world.process("a"), world.process("other")
    assert a.take()
    assert not other.take()
    world.now_us += SECOND - 1
    assert not other.take()
    world.now_us += 1
    assert not a.is_held
    assert other.take()
    assert other.own is not None
    assert other.own.turn == 1


def test_whoever_says_now_and_then_that_it_is_there_keeps_it(world: _World) -> None:
    a, other = world.process("a"), world.process("other")
    assert a.take()
    for _ in range(20):
        assert not other.take()
        world.now_us += 0.9 * SECOND
        assert a.renew()
    assert a.is_held
    assert len(world.disk.storage().list("terms")) == 2


def test_what_is_given_back_is_free_at_once(world: _World) -> None:
    a, other = world.process("a"), world.process("other")
    assert a.take()
    assert not other.take()
    a.release()
    assert other.runs_out_in_us > 0, "it has not looked since"
    assert other.take()


def test_one_that_slept_finds_out_and_has_it_no_more(world: _World) -> None:
    a, other = world.process("a"), world.process("other")
    assert a.take()
    assert not other.take()
    world.now_us += 3_600 * SECOND
    assert not a.is_held
    assert other.take()
    assert not a.renew()
    assert a.own is None
    assert a.seen is not None
    assert a.seen.holder == other.holder
    assert not a.take()


def test_a_number_that_was_removed_meanwhile_gives_nobody_the_lease(world: _World) -> None:
    a, other = world.process("a"), world.process("other")
    assert a.take()
    assert not other.take()
    world.now_us += SECOND
    assert other.take()
    for _ in range(5):
        assert other.renew()
    names = [entry.name for entry in world.disk.storage().list("terms")]
    assert not any(name.endswith("01.json") for name in names), "the number that a goes on with"
    assert not a.renew()
    assert other.renew()


def test_one_that_was_late_and_not_replaced_has_it_again(world: _World) -> None:
    a = world.process("a")
    assert a.take()
    world.now_us += 5 * SECOND
    assert not a.is_held
    assert a.renew()
    assert a.is_held


def test_an_answer_that_was_lost_is_found_and_counts_from_when_it_was_asked() -> None:
    found = 0
    for call in range(1, 40):
        world = _World()
        a = world.process("a")
        world.disk.lose_answer(call, errno.EIO)
        try:
            assert a.take()
        except StorageError:
            was_published = newest_term(world.disk.storage()) is not None
            world.now_us += 0.5 * SECOND
            assert a.take()
            world.now_us += 0.5 * SECOND
            # Who looked the first time counted from then, though it did not see the answer.
            assert not (a.is_held and was_published)
            found += was_published
        world.disk.relax()
        assert a.renew()
        assert a.is_held
    assert found > 0, "some of them were carried out"


def test_one_that_is_alone_has_it_again_however_late_it_finds_what_it_published() -> None:
    found = 0
    for call in range(1, 40):
        world = _World()
        a = world.process("a")
        world.disk.lose_answer(call, errno.EIO)
        try:
            assert a.take()
        except StorageError:
            found += newest_term(world.disk.storage()) is not None
            world.now_us += 10 * SECOND  # as long as nobody answers
            assert a.take() or a.take(), "the first may count from when it was tried"
            assert a.is_held
        world.disk.relax()
    assert found > 0, "some of them were carried out"


def test_what_is_given_back_after_a_lost_answer_is_free_at_once() -> None:
    found = 0
    for call in range(1, 40):
        world = _World()
        a, other = world.process("a"), world.process("other")
        assert a.take()
        before = newest_term(world.disk.storage())
        world.disk.lose_answer(call, errno.EIO)
        try:
            assert a.renew()
        except StorageError:
            found += newest_term(world.disk.storage()) != before
        world.disk.relax()
        a.release()
        assert other.take()
    assert found > 0, "some of them were carried out"


def test_what_another_one_has_taken_is_not_given_back(world: _World) -> None:
    a, other = world.process("a"), world.process("other")
    assert a.take()
    assert not other.take()
    world.now_us += SECOND
    assert other.take()
    a.release()
    assert other.renew()
    assert a.own is None


def test_the_time_that_a_publication_takes_counts(world: _World) -> None:
    a = world.process("a")
    link = world.disk.link

    def slow_link(source: str, target: str) -> None:
        link(source, target)
        world.now_us += 2 * SECOND  # it falls asleep when the file is there

    world.disk.link = slow_link  # type: ignore[method-assign]
    assert not a.take(), "others may have waited for a whole term by now"
    assert a.own is not None
    assert not a.is_held


def test_a_file_that_cannot_be_read_is_waited_out(world: _World) -> None:
    storage = world.disk.storage()
    storage.publish(f"terms/{7:020d}.json", [b"no json"])
    a = world.process("a")
    assert not a.take()
    world.now_us += SECOND
    assert a.take()
    assert a.own is not None
    assert a.own.number == 8


@pytest.mark.parametrize(
    ("term", "says"), [("100 ms", "too short"), ("2 days", "too long"), ("soon", "not a duration")]
)
def test_terms_that_cannot_work_are_refused(term: str, says: str) -> None:
    with pytest.raises(SettingError, match=says):
        check_term(term)
