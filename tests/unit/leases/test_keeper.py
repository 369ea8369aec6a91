"""Keepers in real time, whose storage can be cut off from one of them, from the other, or both."""

from __future__ import annotations

import errno
import logging
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from tests.support.spark_runs import wait_until
from trailmark.errors import StorageError
from trailmark.leases import Holder, Keeper, Keeping, Term, newest_term, open_lease
from trailmark.leases.terms import publish_term
from trailmark.log import Entry, LocalStorage, Part
from trailmark.settings import SECOND, Durability

_TERM_US = 400_000


class _Cable(LocalStorage):
    """A storage that cannot be reached while it is cut."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, Durability.UNSYNCED)
        self.is_cut = False

    def _check(self) -> None:
        if self.is_cut:
            raise StorageError("The storage cannot be reached.") from OSError(errno.EHOSTUNREACH)

    def publish(self, path: str, parts: Sequence[Part], *, force_sync: bool = False) -> bool:
        self._check()
        return super().publish(path, parts, force_sync=force_sync)

    def replace(self, path: str, parts: Sequence[Part]) -> None:
        self._check()
        super().replace(path, parts)

    def list(self, directory: str) -> list[Entry]:
        self._check()
        return super().list(directory)


class _Pair:
    def __init__(self, path: Path) -> None:
        open_lease(path)
        self.cables = [_Cable(path), _Cable(path)]
        self.keepers = [
            Keeper(str(path), cable, Holder(name * 32, name, "host", 1), _TERM_US)
            for name, cable in zip("ab", self.cables, strict=True)
        ]

    def begin(self) -> None:
        """The first has it, the other waits."""
        a, b = self.keepers
        a.start()
        assert a.wait_while(Keeping.WAITING, 30) is Keeping.HELD
        b.start()


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[_Pair]:
    made = _Pair(tmp_path / "lease")
    made.begin()
    yield made
    for cable, keeper in zip(made.cables, made.keepers, strict=True):
        cable.is_cut = False
        keeper.end()


def _becomes(keeper: Keeper, state: Keeping) -> Callable[[], bool]:
    return lambda: keeper.state is state


def test_one_that_is_cut_off_is_replaced_and_knows_by_its_clock_before(
    pair: _Pair, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "trailmark")
    a, b = pair.keepers
    pair.cables[0].is_cut = True
    assert b.wait_while(Keeping.WAITING, 30) is Keeping.HELD
    assert not a.is_held, "it has run out by its own clock, though nobody could tell it"
    assert a.state is Keeping.HELD
    pair.cables[0].is_cut = False
    wait_until("it finds out", _becomes(a, Keeping.LOST), 30)
    assert a.successor == b.holder
    told = [line for line in caplog.messages if "cannot be renewed" in line]
    assert len(told) == 1, "once, not at every attempt"
    assert sum(" lost by a " in line for line in caplog.messages) == 1


def test_whoever_asks_is_told_at_once_however_long_a_term_is(tmp_path: Path) -> None:
    path, storage = open_lease(tmp_path / "lease")
    keeper = Keeper(path, storage, Holder("a" * 32, "a", "host", 1), 600 * SECOND)
    keeper.start()
    try:
        assert keeper.wait_while(Keeping.WAITING, 30) is Keeping.HELD
        began_s = time.monotonic()
        assert all(keeper.is_still_held() for _ in range(3))
        before = newest_term(storage)
        assert before is not None
        publish_term(storage, Term(before.number + 1, Holder("b" * 32, "b", "host", 2)))
        assert not keeper.is_still_held()
        assert time.monotonic() - began_s < 60, "a renewal every 150 s would not do"
    finally:
        keeper.end()


def test_one_that_nobody_asks_for_is_given_back_and_waited_for_no_more(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path, storage = open_lease(tmp_path / "lease")
    a, b = (
        Keeper(path, storage, Holder(name * 32, name, "host", 1), _TERM_US, unused_us=SECOND)
        for name in "ab"
    )
    a.start()
    wait_until("it has it", a.ask, 30)
    b.start()
    wait_until("both end", lambda: a.state is b.state is Keeping.ENDED, 30)
    newest = newest_term(storage)
    assert newest is not None
    assert newest.is_released
    assert not a.ask()
    assert sum("has not asked for it for" in line for line in caplog.messages) == 2


def test_one_that_waits_and_is_cut_off_changes_nothing(pair: _Pair) -> None:
    a, b = pair.keepers
    pair.cables[1].is_cut = True
    assert a.is_still_held()
    assert a.wait_while(Keeping.HELD, 3 * _TERM_US / 1e6) is Keeping.HELD
    pair.cables[1].is_cut = False
    assert b.wait_while(Keeping.WAITING, 3 * _TERM_US / 1e6) is Keeping.WAITING


def test_both_that_are_cut_off_go_on_as_before_when_they_are_not(pair: _Pair) -> None:
    a, b = pair.keepers
    for cable in pair.cables:
        cable.is_cut = True
    wait_until("it has run out", lambda: not a.is_held, 30)
    assert b.state is Keeping.WAITING
    for cable in pair.cables:
        cable.is_cut = False
    wait_until("one has it", lambda: a.is_held or b.is_held, 30)
    if b.is_held:
        wait_until("the other finds out", _becomes(a, Keeping.LOST), 30)
    assert [each.is_held for each in pair.keepers].count(True) == 1


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_keeper_whose_thread_fails_has_nothing(pair: _Pair) -> None:
    a, b = pair.keepers

    def fail() -> float:
        raise RuntimeError("a fault of ours")

    a._keep = fail  # type: ignore[method-assign]
    wait_until("it is lost", _becomes(a, Keeping.LOST), 30)
    assert b.wait_while(Keeping.WAITING, 30) is Keeping.HELD
