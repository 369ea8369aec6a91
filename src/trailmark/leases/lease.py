"""A lease as one process sees it: looks, takes, renews and gives back."""

from __future__ import annotations

import logging
import time

from trailmark.errors import TrailmarkError
from trailmark.leases.terms import (
    Holder,
    Term,
    forget_terms_before,
    newest_term,
    publish_term,
)
from trailmark.log import Clock, MonotonicClock, Storage, wall_clock_us

_log = logging.getLogger("trailmark")

#: Of a term, so much counts for who has it. The rest is for clocks that run at other speeds.
_HELD_SHARE = 0.95
_BOOT_TIME = getattr(time, "CLOCK_BOOTTIME", None)


def boot_us() -> float:
    """A clock that goes on while the machine sleeps, where there is one."""
    if _BOOT_TIME is None:
        return time.monotonic_ns() / 1_000
    return time.clock_gettime_ns(_BOOT_TIME) / 1_000


class Lease:
    """A lease in the hands of one process. Not for several threads at once.

    Any call may raise a ``StorageError``; then nobody knows what came of it, and the next call
    finds out.

    Parameters
    ----------
    storage
        Where it is.
    holder
        Who this process is.
    term_us
        How long others have to wait when this process falls silent.
    now_us
        Measures how long nothing has changed.
    clock
        Tells people when a turn began.
    """

    def __init__(
        self,
        storage: Storage,
        holder: Holder,
        term_us: int,
        *,
        now_us: MonotonicClock = boot_us,
        clock: Clock = wall_clock_us,
    ) -> None:
        self.holder = holder
        self.term_us = term_us
        self._storage = storage
        self._now_us = now_us
        self._clock = clock
        self._own: Term | None = None
        self._until_us = 0.0
        self._seen: Term | None = None
        self._seen_us = now_us()
        self._tried = (-1, 0.0)
        self._is_tidy = False

    @property
    def is_held(self) -> bool:
        """Whether this process has the lease, by its own clock."""
        return self._own is not None and self._now_us() < self._until_us

    @property
    def own(self) -> Term | None:
        """What this process said last; None if the lease is not its own, or was lost."""
        return self._own

    @property
    def seen(self) -> Term | None:
        """What was said last when this process looked last."""
        return self._seen

    @property
    def unchanged_us(self) -> float:
        """For how long that has been so, as far as this process has seen."""
        return self._now_us() - self._seen_us

    @property
    def runs_out_in_us(self) -> float:
        """How long others still have it if they stay silent; 0 if it is free."""
        seen = self._seen
        if seen is None or seen.is_released:
            return 0.0
        term_us = self.term_us if seen.problem else seen.term_us
        return max(0.0, term_us - self.unchanged_us)

    def look(self) -> Term | None:
        """What was said last."""
        newest = newest_term(self._storage)
        if newest != self._seen:
            # Only now: what is said while this process asks counts from then on.
            self._seen, self._seen_us = newest, self._now_us()
        return newest

    def take(self) -> bool:
        """Takes the lease if it is free or has run out; whether this process has it now."""
        seen = self.look()
        if seen is not None and seen.is_of(self.holder):
            # The answer to an earlier attempt was lost. Where it would come too late, nobody else
            # may be there who waits for the end of this term.
            return self._keep(seen) or self._say(_after(seen))
        if self.runs_out_in_us > 0:
            return False
        number, turn = (0, 0) if seen is None else (seen.number + 1, seen.turn + 1)
        return self._say(Term(number, self.holder, turn, self.term_us, taken_us=self._clock()))

    def renew(self) -> bool:
        """Says once more that this process is there; False if another one has taken the lease."""
        own = self._own
        assert own is not None, "taken before"
        return self._say(_after(own))

    def release(self) -> None:
        """Gives the lease back: who waits need not wait for the end of the term."""
        own, self._own = self._own, None
        if own is None or self._publish(_after(own, is_released=True)):
            return
        newest = self.look()
        if newest is not None and newest.is_of(self.holder):  # a renewal whose answer was lost
            self._publish(_after(newest, is_released=True))

    def _say(self, term: Term) -> bool:
        self._publish(term)
        newest = self.look()
        assert newest is not None, "something was said"
        if newest.number == term.number and newest.is_of(self.holder):
            return self._keep(newest)
        self._own = None
        return False

    def _publish(self, term: Term) -> bool:
        if self._tried[0] != term.number:  # else it may be there already, and count since then
            self._tried = (term.number, self._now_us())
        return publish_term(self._storage, term)

    def _keep(self, term: Term) -> bool:
        number, tried_us = self._tried
        self._own = term
        # An older one, that is the newest again because the storage has lost later ones, says
        # nothing of now.
        is_last = number == term.number
        self._until_us = tried_us + _HELD_SHARE * self.term_us if is_last else tried_us
        try:
            # Whose numbers are left over, from before its turn, is not known: once it looks.
            forget_terms_before(self._storage, term.number, all_of_them=not self._is_tidy)
            self._is_tidy = True
        except TrailmarkError as error:
            # Nobody goes by them, and the next one to say something tries again.
            self._is_tidy = False
            _log.debug("earlier terms of a lease are not removed: %s", error.line)
        return self.is_held


def _after(own: Term, *, is_released: bool = False) -> Term:
    return Term(own.number + 1, own.holder, own.turn, own.term_us, is_released, own.taken_us)
