"""Replicas of a union take turns: only one at a time holds new rows back while it corrects.

Whose turn it is says a lease. Nothing but answers depends on it. What a replica releases as stable
follows from the streams alone, and what its batch did is in its decision: so a replica that slept
through its turn, and corrects beside another one when it wakes, gives the same rows as ever. It
asks before its next decision, and goes on answering if it is another's turn by then.

A replica that cannot ask waits, and answers: of two that cannot, neither is silent.
"""

from __future__ import annotations

from collections.abc import Callable

from trailmark.leases import Holder, Keeper, Keeping, boot_us
from trailmark.leases.place import open_lease_storage
from trailmark.log import MonotonicClock, Storage
from trailmark.log.storage.urls import redacted
from trailmark.settings import MINUTE
from trailmark.streams.asking import Hands, InThreads
from trailmark.streams.union.decision import Turn
from trailmark.values import dataclass

#: A turn ends when its union has not asked for it for so many times the bound, and not sooner than
#: this: the batch that runs hangs. It is also how long what came during a correction is caught up
#: with at most, before another replica may correct.
_STALLED, _LEAST_STALLED_US = 10, MINUTE
#: How long a process waits that ends and gives its turn back; if it takes longer, it runs out.
_PATIENCE_S = 1.0


@dataclass(frozen=True, slots=True)
class TurnsAt:
    """Where replicas agree whose turn it is.

    Parameters
    ----------
    path
        A lease.
    term_us
        For how long who has it may be silent.
    """

    path: str
    term_us: int


class Turns:
    """The turns of one union among its replicas. None of the calls waits for the storage, but for
    the first of `ask`, for ``patience_s`` at most.

    Parameters
    ----------
    at, storage
        Where they are agreed on.
    name
        What people call this union.
    within_us
        The bound within which the union answers.
    patience_s
        For how long somebody who asks for a turn that nobody has waits for it.
    begin
        Begins to keep what it is given; by default in a thread.
    hands
        Who gives turns back.
    now_us
        Measures how long nothing has changed.
    """

    def __init__(
        self,
        at: TurnsAt,
        name: str,
        within_us: int,
        patience_s: float = 0.0,
        *,
        storage: Storage | None = None,
        begin: Callable[[Keeper], None] = Keeper.start,
        hands: Hands | None = None,
        now_us: MonotonicClock = boot_us,
    ) -> None:
        self._at = at
        self._name = redacted(name)
        self._storage = open_lease_storage(at.path, at.term_us) if storage is None else storage
        self._stalled_us = max(_STALLED * within_us, _LEAST_STALLED_US)
        self._patience_s = patience_s
        self._begin = begin
        self._hands = hands or InThreads()
        self._now_us = now_us
        self._keeper: Keeper | None = None
        self._rests_until_us = float("-inf")
        self._caught_up_by_us: float | None = None

    def ask(self) -> Turn:
        """Whose turn it is. Whoever asks waits for it until they give it back."""
        self._caught_up_by_us = None
        keeper = self._keeper
        if keeper is None or keeper.state in (Keeping.LOST, Keeping.ENDED):
            if self._now_us() < self._rests_until_us:
                return Turn(is_own=False)
            keeper = self._keeper = self._new()
        if keeper.ask():
            return Turn(is_own=True)
        other = keeper.waits_for
        is_known = other is not None and other.token != keeper.holder.token
        return Turn(is_own=False, whose=str(other) if is_known else "", problem=keeper.problem)

    def keep(self) -> Turn | None:
        """The turn, if it is this union's, for a while: it catches up with what came meanwhile."""
        now_us = self._now_us()
        if self._caught_up_by_us is None:
            self._caught_up_by_us = now_us + self._stalled_us
        if self._keeper is not None and now_us < self._caught_up_by_us and self._keeper.ask():
            return Turn(is_own=True)
        self.give_back()
        return None

    def give_back(self) -> None:
        """It needs no turn, and waits for none."""
        keeper, self._keeper, self._caught_up_by_us = self._keeper, None, None
        if keeper is not None:
            # Those who have waited look several times in a term: they come first.
            self._rests_until_us = self._now_us() + self._at.term_us
            self._hands.begin(keeper.end)

    def end(self) -> None:
        """The process ends."""
        keeper, self._keeper = self._keeper, None
        if keeper is not None:
            self._hands.wait([self._hands.begin(keeper.end)], _PATIENCE_S)

    def _new(self) -> Keeper:
        keeper = Keeper(
            self._at.path,
            self._storage,
            Holder.of_process(self._name),
            self._at.term_us,
            unused_us=self._stalled_us,
            now_us=self._now_us,
        )
        keeper.say_ready("waits to correct, and answers")
        self._begin(keeper)
        if self._patience_s:
            keeper.wait_while(Keeping.WAITING, self._patience_s)
        return keeper
