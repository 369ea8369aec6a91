"""Waits for a lease, and keeps it, in a thread of its own; every move is one line in the log."""

from __future__ import annotations

import logging
import threading
from enum import Enum

from trailmark import units
from trailmark.errors import TrailmarkError
from trailmark.leases.lease import Lease, boot_us
from trailmark.leases.terms import Holder, Term
from trailmark.leases.waiting import Sweeper, Waiting, say_not_waiting, say_waiting
from trailmark.log import MonotonicClock, Storage
from trailmark.log.storage.urls import redacted
from trailmark.settings import SECOND

_log = logging.getLogger("trailmark")

#: In every term a holder says so often that it is there, and one that waits looks so often.
_RENEWALS, _LOOKS = 4, 8
#: Who waits says so once in a term, but no more and no less often than this.
_SHORTEST_BEAT_US, _LONGEST_BEAT_US = SECOND, 2 * SECOND
#: Now and then a holder looks for those who are gone.
_SWEEP_TERMS = 20
#: How long a storage that does not answer is waited for, at the end and by whoever asks.
_PATIENCE_S = 10.0


class Keeping(Enum):
    """Where a process stands with its lease."""

    WAITING = "waits"
    HELD = "active"
    LOST = "lost"
    ENDED = "ended"


class Keeper:
    """Keeps a lease for its process once it has it.

    Parameters
    ----------
    path
        Where the lease is, for people.
    storage, holder, term_us
        As of `Lease`.
    unused_us
        It is given back when nobody has asked for it (`ask`) for so long: whoever it is for hangs,
        or is gone. None keeps it whatever happens.
    now_us
        Measures how long nothing has changed.
    """

    def __init__(
        self,
        path: str,
        storage: Storage,
        holder: Holder,
        term_us: int,
        *,
        unused_us: int | None = None,
        now_us: MonotonicClock = boot_us,
    ) -> None:
        self.holder = holder
        self._path = redacted(path)
        self._storage = storage
        self._term_us = term_us
        self._beat_us = min(max(_SHORTEST_BEAT_US, term_us), _LONGEST_BEAT_US)
        self._unused_us = unused_us
        self._now_us = now_us
        self._lease = Lease(storage, holder, term_us, now_us=now_us)
        self._sweeper = Sweeper(storage, term_us, now_us)
        self._state = Keeping.WAITING
        self._changed = threading.Condition()
        self._ends = threading.Event()
        self._woken = threading.Event()
        self._readiness = ""
        self._beats = 0
        self._beaten_us: float | None = None
        self._swept_us = self._used_us = now_us()
        self._problem = ""
        self._told_of: str | None = None
        self._asked = self._answered = 0
        self._thread = threading.Thread(target=self._run, name="trailmark lease", daemon=True)

    @property
    def state(self) -> Keeping:
        """Where it stands now, as far as it knows."""
        if self._state in (Keeping.WAITING, Keeping.HELD) and not self._thread.is_alive():
            # Its thread has failed, and said so: nobody renews the lease any more.
            return Keeping.LOST if self._thread.ident is not None else self._state
        return self._state

    @property
    def is_held(self) -> bool:
        """Whether the lease is this process's, and has not run out by its clock."""
        return self._state is Keeping.HELD and self._lease.is_held

    @property
    def successor(self) -> Holder | None:
        """Who has the lease that was lost."""
        seen = self._lease.seen
        return None if seen is None else seen.holder

    @property
    def waits_for(self) -> Holder | None:
        """Who has the lease that is waited for; None if nobody has, or that is not known."""
        seen = self._lease.seen
        return None if seen is None or seen.is_released or seen.problem else seen.holder

    @property
    def problem(self) -> str:
        """Why the lease could not be looked at when that was tried last; empty if it could."""
        return self._problem

    def start(self) -> None:
        """Begins to wait."""
        self._thread.start()

    def ask(self) -> bool:
        """Whether the lease is this process's; it is kept, or waited for, for those who ask."""
        self._used_us = self._now_us()
        return self.is_held

    def say_ready(self, readiness: str) -> None:
        """What those who look are told of one that waits."""
        self._readiness, self._beaten_us = readiness, None

    def wait_while(self, state: Keeping, timeout_s: float) -> Keeping:
        """Waits until it stands elsewhere, but no longer than this."""
        with self._changed:
            self._changed.wait_for(lambda: self.state is not state, timeout_s)
            return self.state

    def is_still_held(self) -> bool:
        """Whether the lease is this process's, as a renewal finds that begins now; also if none
        succeeds while somebody can wait for it."""
        with self._changed:
            self._asked += 1
            mine = self._asked
            self._woken.set()
            self._changed.wait_for(
                lambda: self.state is not Keeping.HELD or self._answered >= mine, _PATIENCE_S
            )
            return self.state is Keeping.HELD

    def end(self) -> None:
        """Waits no more, and gives back what it has."""
        self._ends.set()
        self._woken.set()
        if self._thread.is_alive():
            self._thread.join(_PATIENCE_S)
        try:
            if self._thread.is_alive():
                _log.warning("lease %s: not given back, it runs out: no answer", self._path)
            else:
                self._let_go()
        except TrailmarkError as error:
            _log.warning("lease %s: not given back, it runs out: %s", self._path, error.line)
        self._become(Keeping.ENDED)

    def _become(self, state: Keeping) -> None:
        with self._changed:
            self._state = state
            self._changed.notify_all()

    def _let_go(self) -> None:
        if self._state is Keeping.HELD:
            self._lease.release()
            _log.info("lease %s: given back by %s", self._path, self.holder)
        else:
            say_not_waiting(self._storage, self.holder)

    def _run(self) -> None:
        while not self._ends.is_set() and self._state in (Keeping.WAITING, Keeping.HELD):
            began_us = self._now_us()
            pause_us = self.step()
            # From when it began: a slow storage must not make renewals rare.
            spent_us = self._now_us() - began_us
            self._woken.wait(max(0.0, pause_us - spent_us) / SECOND)
            self._woken.clear()  # now: why it was woken is looked at next

    def step(self) -> float:
        """Does what is due, for those who have a thread of their own for it; returns after how many
        microseconds something is due again."""
        try:
            pause_us = self._step()
            self._problem = ""
        except TrailmarkError as error:
            pause_us = self._term_us / _LOOKS
            self._complain(error)
        return pause_us

    def _step(self) -> float:
        unused_us = self._now_us() - self._used_us
        if self._unused_us is not None and unused_us > self._unused_us:
            self._let_go()
            _log.warning(
                "lease %s: %s has not asked for it for %s, and does not wait or keep it any longer",
                self._path,
                self.holder,
                units.duration(unused_us),
            )
            self._become(Keeping.ENDED)
            return 0.0
        return self._keep() if self._state is Keeping.HELD else self._wait()

    def _wait(self) -> float:
        self._beat()
        before = self._lease.look()
        silent_us = self._lease.unchanged_us
        if not self._lease.take():
            self._tell_waiting()
            return min(self._term_us / _LOOKS, self._beat_us, self._lease.runs_out_in_us)
        own = self._lease.own
        assert own is not None, "taken"
        _log.warning(
            "lease %s: taken by %s, turn %d: %s",
            self._path,
            self.holder,
            own.turn + 1,
            _why_free(before, silent_us),
        )
        self._become(Keeping.HELD)
        say_not_waiting(self._storage, self.holder)
        return self._term_us / _RENEWALS

    def _keep(self) -> float:
        asked = self._asked  # whoever asks while it is under way means the next one
        if not self._lease.renew():
            _log.error(
                "lease %s: lost by %s; %s has it and goes on",
                self._path,
                self.holder,
                self.successor,
            )
            self._become(Keeping.LOST)
            return 0.0
        with self._changed:
            self._answered = asked
            self._changed.notify_all()
        now_us = self._now_us()
        if now_us - self._swept_us > _SWEEP_TERMS * self._term_us:
            self._swept_us = now_us
            self._sweeper.sweep()
        return self._term_us / _RENEWALS

    def _beat(self) -> None:
        """Says that it waits, now and then, and whenever that has changed."""
        now_us = self._now_us()
        if self._beaten_us is None or now_us - self._beaten_us >= self._beat_us:
            self._beats += 1
            self._beaten_us = now_us
            say_waiting(self._storage, Waiting(self.holder, self._beats, self._readiness))

    def _tell_waiting(self) -> None:
        seen = self._lease.seen
        token = "" if seen is None else seen.holder.token
        if token and token != self._told_of:
            self._told_of = token
            assert seen is not None, "has a holder"
            _log.info("lease %s: %s waits; %s has it", self._path, self.holder, seen.holder)

    def _complain(self, error: TrailmarkError) -> None:
        if error.line != self._problem:  # once, not at every attempt
            self._problem = error.line
            does = "renewed" if self._state is Keeping.HELD else "looked at"
            _log.warning("lease %s: cannot be %s: %s", self._path, does, error.line)


def _why_free(before: Term | None, silent_us: float) -> str:
    if before is None:
        return "nobody has had it yet"
    if before.is_released:
        return f"{before.holder} has given it back"
    return f"{before.holder} has been silent for {units.duration(silent_us)}"
