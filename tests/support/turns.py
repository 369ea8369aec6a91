"""Replicas of a union that take turns, in simulated time: each with the same streams behind lines
of its own, and with a line of its own to the lease."""

from __future__ import annotations

import errno
from collections.abc import Sequence
from dataclasses import dataclass, field

from tests.support.union_answers import LOOK, Life
from tests.support.unreachable import Line
from trailmark.leases import Keeper, Keeping
from trailmark.streams.asking import InTurn
from trailmark.streams.union.answering import Answering
from trailmark.streams.union.turns import Turns, TurnsAt
from trailmark.testing.disk import SimulatedDisk

TERM = 4 * LOOK


@dataclass
class Seat:
    """The place of one replica at the lease; its clock is the replica's own."""

    disk: SimulatedDisk
    now: int = 0
    line: Line = field(init=False)
    keepers: list[Keeper] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.line = Line(self.disk)

    def turns(self) -> Turns:
        """Those of another process: what one before it kept is renewed by nobody any more."""
        self.keepers = []
        return Turns(
            TurnsAt("/turns", TERM),
            "union",
            within_us=LOOK,
            storage=self.line.storage(),
            begin=self._begin,
            hands=InTurn(),
            now_us=lambda: self.now,
        )

    def has_turn(self) -> bool:
        return any(each.is_held for each in self.keepers)

    def step(self) -> None:
        """What a thread does in real time."""
        self.keepers = [
            each for each in self.keepers if each.state in (Keeping.WAITING, Keeping.HELD)
        ]
        for each in self.keepers:
            each.step()

    def _begin(self, keeper: Keeper) -> None:
        self.keepers.append(keeper)
        keeper.step()


@dataclass
class Replicas:
    """Unions of the same streams, the writers of which promise something."""

    seats: list[Seat]
    lives: list[Life]
    #: Those that do nothing now: they are stopped.
    stopped: set[int] = field(default_factory=set)
    #: How often one waited while another had its turn, and while none had.
    waited_for_other = waited_for_none = 0

    @classmethod
    def of(
        cls,
        delays: Sequence[dict[str, int | None]],
        interval: int,
        answering: Answering,
        count: int = 2,
        **given: object,
    ) -> Replicas:
        disk = SimulatedDisk()
        seats = [Seat(disk) for _ in range(count)]
        lives = [
            Life(
                delays,
                interval,
                answering,
                turns=seat.turns,
                has_turn=seat.has_turn,
                **given,  # type: ignore[arg-type]
            )
            for seat in seats
        ]
        return cls(seats, lives)

    @property
    def now(self) -> int:
        return max(each.now for each in self.lives)

    def commit(self, place: int, times: Sequence[int], writer: str = "w0") -> None:
        for life in self.lives:
            life.commit(place, times, writer)

    def heartbeat(self, place: int, asked: int, writer: str = "w0") -> None:
        for life in self.lives:
            life.heartbeat(place, asked, writer)

    def cut_lease(self, *places: int) -> None:
        """These cannot reach the lease; all others can."""
        for place, seat in enumerate(self.seats):
            if place in places:
                seat.line.cut(errno.EHOSTUNREACH)
            else:
                seat.line.mend()

    def kill(self, place: int) -> None:
        """Another process goes on in its place, and knows what is in its decisions."""
        self.lives[place].restart(self.lives[place].oracle.answering)

    def look(self) -> None:
        """Time goes on for all, and those that are not stopped look."""
        for place, (seat, life) in enumerate(zip(self.seats, self.lives, strict=True)):
            seat.now = life.now + LOOK
            if place in self.stopped:
                life.now += LOOK
                life.clock.now_us += LOOK
            else:
                seat.step()
                life.look()
        self._check_answers()

    def _check_answers(self) -> None:
        there = [each for n, each in enumerate(self.lives) if n not in self.stopped]
        assert sum(each.oracle.is_silent for each in there) <= 1, "somebody answers"
        turns = sum(each.has_turn() for each in self.seats)
        assert turns <= 1
        if any(each.oracle.waits for each in there):
            self.waited_for_other += turns
            self.waited_for_none += not turns
