"""Asks several streams side by side, so that one which does not answer holds up nobody.

What is asked of a stream is one thing at a time. While that hangs, as in an object store behind a
line that is cut, nothing more is asked of it, and its answer is taken whenever it comes.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from concurrent.futures import Future, wait
from threading import Thread
from typing import Any, Protocol, TypeVar

from trailmark import units
from trailmark.errors import Unreachable
from trailmark.log import Clock, MonotonicClock
from trailmark.values import dataclass

_T = TypeVar("_T")

#: A stream that is merely slow is not told of before it has been so for this long.
_TOLD_AFTER_US = 1_000_000


class Hands(Protocol):
    """Who does what is asked."""

    def begin(self, work: Callable[[], _T]) -> Future[_T]:
        """Begins, or has done it already."""

    def wait(self, begun: Sequence[Future[Any]], seconds: float | None) -> None:
        """Returns when all is done, or so much time has passed."""


class InTurn:
    """Does one thing after another, for those who wait for all of them anyway."""

    def begin(self, work: Callable[[], _T]) -> Future[_T]:
        future: Future[_T] = Future()
        _carry_out(work, future)
        return future

    def wait(self, begun: Sequence[Future[Any]], seconds: float | None) -> None:
        assert all(each.done() for each in begun)


class InThreads:
    """Does things side by side. No thread keeps a process from ending: one may hang for long."""

    def begin(self, work: Callable[[], _T]) -> Future[_T]:
        future: Future[_T] = Future()
        Thread(target=_carry_out, args=(work, future), name="union-look", daemon=True).start()
        return future

    def wait(self, begun: Sequence[Future[Any]], seconds: float | None) -> None:
        wait(begun, seconds)


def _carry_out(work: Callable[[], _T], future: Future[_T]) -> None:
    try:
        future.set_result(work())
    except BaseException as error:  # noqa: BLE001 - whoever takes the answer meets it
        future.set_exception(error)


@dataclass(frozen=True, slots=True)
class Unreached:
    """Since when a stream cannot be reached, by the clock, and why."""

    since_us: int
    why: str


class Told(Protocol):
    """Who hears of streams that do not answer."""

    def gone(self, name: str, unreached: Unreached) -> None:
        """One does not answer."""

    def back(self, name: str, after_us: float) -> None:
        """It answers again."""


@dataclass(frozen=True, slots=True)
class _Asked:
    what: Hashable
    answer: Future[Any]
    begun_us: float


@dataclass(frozen=True, slots=True)
class _Away:
    """Since when a stream has not answered, by both clocks."""

    since_us: float
    began_us: int


class Asking:
    """What is asked of streams, by their names.

    Parameters
    ----------
    hands
        Who does it.
    patience_us
        How long an answer may take; who takes longer does not answer for now.
    now_us, clock
        A clock that never goes back, and the time of day.
    told
        Who hears of those that do not answer.

    Attributes
    ----------
    insists
        Whether all answers are waited for, and errors raised.
    unreachable
        The streams that do not answer, since when, and why.
    """

    def __init__(
        self,
        hands: Hands,
        patience_us: float,
        now_us: MonotonicClock,
        clock: Clock,
        told: Told,
    ) -> None:
        self._hands = hands
        self._patience_us = patience_us
        self._now_us = now_us
        self._clock = clock
        self._told = told
        self._asked: dict[str, _Asked] = {}
        self._away: dict[str, _Away] = {}
        self.insists = False
        self.unreachable: dict[str, Unreached] = {}

    def ask(self, what: Hashable, work: Mapping[str, Callable[[], _T]]) -> dict[str, _T]:
        """The answers of those streams that answer in time. One that was asked the same before
        answers that."""
        for name, do in work.items():
            asked = self._asked.get(name)
            if asked is None or (asked.answer.done() and asked.what != what):
                self._asked[name] = _Asked(what, self._hands.begin(do), self._now_us())
        self._wait([self._asked[name] for name in work])
        found: dict[str, _T] = {}
        for name in work:
            if not self._asked[name].answer.done():
                self._is_late(name)
            elif (asked := self._asked.pop(name)).what == what:
                self._take(name, asked.answer, found)
        return found

    def is_away(self, name: str) -> bool:
        """Whether a stream does not answer."""
        return name in self._away

    def away_us(self, name: str) -> float:
        """How long a stream has not answered."""
        away = self._away.get(name)
        return 0.0 if away is None else self._now_us() - away.since_us

    def _wait(self, asked: Sequence[_Asked]) -> None:
        waiting = [each for each in asked if not each.answer.done()]
        # Whoever has had its time is not waited for again beside others.
        over_us = float("-inf") if self.insists else self._now_us() - self._patience_us
        waiting = [each for each in waiting if each.begun_us > over_us]
        if waiting:
            left_us = max(each.begun_us for each in waiting) - over_us
            seconds = None if self.insists else left_us / 1_000_000
            self._hands.wait([each.answer for each in waiting], seconds)

    def _take(self, name: str, answer: Future[_T], found: dict[str, _T]) -> None:
        try:
            found[name] = answer.result()
        except Unreachable as error:
            if self.insists:
                raise
            self._away.setdefault(name, self._since(self._now_us()))
            self._tell(name, f"{error.what.rstrip('.')} ({error.where})")
            return
        gone = self._away.pop(name, None)
        if self.unreachable.pop(name, None) is not None and gone is not None:
            self._told.back(name, self._now_us() - gone.since_us)

    def _is_late(self, name: str) -> None:
        away = self._away.setdefault(name, self._since(self._asked[name].begun_us))
        waited_us = self._now_us() - away.since_us
        if waited_us >= _TOLD_AFTER_US:
            self._tell(name, f"no answer within {units.duration(self._patience_us)}")

    def _since(self, moment_us: float) -> _Away:
        return _Away(moment_us, self._clock() - round(self._now_us() - moment_us))

    def _tell(self, name: str, why: str) -> None:
        if name not in self.unreachable:
            self.unreachable[name] = Unreached(self._away[name].began_us, why)
            self._told.gone(name, self.unreachable[name])
