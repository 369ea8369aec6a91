"""A picture of a lease from its files: who is active, who waits and how ready they are.

Whether somebody is still there is seen by looking twice: what has not changed meanwhile is silent.
`LeaseStatusReader` waits for that, `LeaseWatcher` looks again and again anyway.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from trailmark.leases.lease import boot_us
from trailmark.leases.place import check_version
from trailmark.leases.terms import Holder, Term, newest_term
from trailmark.leases.waiting import Waiting, all_waiting
from trailmark.log import Clock, MonotonicClock, Storage, wall_clock_us
from trailmark.settings import MILLISECOND, SECOND
from trailmark.values import dataclass

#: Nobody looks for longer, however long a term is; and for those who wait, who beat every two
#: seconds at least, not for so long.
_LONGEST_LOOK_US, _LONGEST_FOR_WAITING_US = 15 * SECOND, 3 * SECOND
#: Who waits says so once in a term, or in a second where that is longer; in two at most.
_BEATS = 1.5
_PAUSE_US = 20 * MILLISECOND


@dataclass(frozen=True, slots=True)
class WaitingStatus:
    """One that waits; ``is_there`` if it has said so while somebody looked."""

    waiting: Waiting
    is_there: bool


@dataclass(frozen=True, slots=True)
class LeaseStatus:
    """A lease.

    Attributes
    ----------
    looked_us
        When the picture was made.
    watched_us
        For how long it was looked at.
    term
        What was said last; None if nobody has had it.
    renewed
        Whether that was said while it was looked at.
    waiting
        Who waits, those that are there first.
    """

    looked_us: int
    watched_us: int
    term: Term | None
    renewed: bool
    waiting: tuple[WaitingStatus, ...]

    @property
    def active(self) -> Holder | None:
        """Who has it, as far as that can be seen."""
        term = self.term
        if term is None or term.is_released or term.problem or self.has_run_out:
            return None
        return term.holder

    @property
    def has_run_out(self) -> bool:
        """Whether nothing was said for a whole term."""
        term = self.term
        if term is None or term.is_released or self.renewed:
            return False
        return self.watched_us >= term.term_us

    @property
    def is_sound(self) -> bool:
        """Whether somebody is active."""
        return self.active is not None

    def describe(self) -> dict[str, Any]:
        """All of it as JSON."""
        term = self.term
        return {
            "kind": "lease",
            "looked_us": self.looked_us,
            "watched_us": self.watched_us,
            "active": None if self.active is None else _described(self.active),
            "term": None
            if term is None
            else {
                "number": term.number,
                "turn": term.turn,
                "term_us": term.term_us,
                "holder": _described(term.holder),
                "is_released": term.is_released,
                "taken_us": term.taken_us,
                "renewed": self.renewed,
                "has_run_out": self.has_run_out,
                "problem": term.problem,
            },
            "waiting": [
                {
                    **_described(each.waiting.holder),
                    "readiness": each.waiting.readiness,
                    "is_there": each.is_there,
                    "problem": each.waiting.problem,
                }
                for each in self.waiting
            ],
        }


class LeaseStatusReader:
    """Reads pictures of a lease; changes nothing.

    Parameters
    ----------
    storage
        Where it is.
    now_us, sleep
        Measure how long it is looked at, and wait meanwhile.
    clock
        Says when.
    """

    def __init__(
        self,
        storage: Storage,
        *,
        now_us: MonotonicClock = boot_us,
        sleep: Callable[[float], None] = time.sleep,
        clock: Clock = wall_clock_us,
    ) -> None:
        self._storage = storage
        self._now_us = now_us
        self._sleep = sleep
        self._clock = clock

    def read(self) -> LeaseStatus:
        """Looks until all have said something, or for as long as they may be silent."""
        check_version(self._storage)
        began_us = self._now_us()
        first, waited = newest_term(self._storage), all_waiting(self._storage)
        there: set[str] = set()
        while True:
            term, waiting = newest_term(self._storage), all_waiting(self._storage)
            renewed = term != first
            there |= {each for each in waiting if waiting[each] != waited.get(each)}
            watched_us = self._now_us() - began_us
            is_clear = renewed or term is None or term.is_released
            longest_us = _longest_us(term)
            all_there = there >= waiting.keys()
            all_there |= watched_us >= min(longest_us, _LONGEST_FOR_WAITING_US)
            if (is_clear and all_there) or watched_us >= longest_us:
                break
            self._sleep(_PAUSE_US / SECOND)
        found = [WaitingStatus(each, token in there) for token, each in waiting.items()]
        return LeaseStatus(self._clock(), round(watched_us), term, renewed, _in_order(found))


class LeaseWatcher:
    """Looks at a lease now and then, and waits for nobody; changes nothing.

    Parameters
    ----------
    storage
        Where it is.
    now_us
        Measures how long nothing has changed.
    clock
        Says when.
    """

    def __init__(
        self, storage: Storage, *, now_us: MonotonicClock = boot_us, clock: Clock = wall_clock_us
    ) -> None:
        self._storage = storage
        self._now_us = now_us
        self._clock = clock
        self._term: tuple[Term | None, float] | None = None
        self._waiting: dict[str, tuple[Waiting, float]] = {}

    def look(self) -> LeaseStatus:
        """What is there now, and what has changed since the last look."""
        check_version(self._storage)
        term, found = newest_term(self._storage), all_waiting(self._storage)
        now_us = self._now_us()  # what is said while somebody asks counts from then on
        is_first = self._term is None
        if self._term is None or self._term[0] != term:
            self._term = term, now_us
        since_us = self._term[1]
        renewed = since_us == now_us and not is_first
        self._waiting = {token: self._seen(token, each, now_us) for token, each in found.items()}
        waiting = [
            WaitingStatus(each, now_us - at_us <= _LONGEST_FOR_WAITING_US)
            for each, at_us in self._waiting.values()
        ]
        return LeaseStatus(
            self._clock(), round(now_us - since_us), term, renewed, _in_order(waiting)
        )

    def _seen(self, token: str, waiting: Waiting, now_us: float) -> tuple[Waiting, float]:
        """One that waits, and when that was last seen to change."""
        before = self._waiting.get(token)
        return before if before is not None and before[0] == waiting else (waiting, now_us)


def _in_order(waiting: list[WaitingStatus]) -> tuple[WaitingStatus, ...]:
    return tuple(sorted(waiting, key=lambda each: (not each.is_there, each.waiting.holder.name)))


def _longest_us(term: Term | None) -> float:
    term_us = SECOND if term is None else max(SECOND, term.term_us)
    return min(_LONGEST_LOOK_US, _BEATS * term_us)


def _described(holder: Holder) -> dict[str, Any]:
    return {"name": holder.name, "host": holder.host, "pid": holder.pid}
