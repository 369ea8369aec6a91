"""Processes that want one lease and write one log, in simulated time: a case from one seed.

They share a simulated disk. At every call that others could notice a scheduler says who goes on;
time passes meanwhile, somebody falls asleep between two calls for a moment or an hour, is killed
and started again, or gets no answer. Clocks begin anywhere and run at different speeds; in half of
the cases they also leap.

What must hold is said in terms of the world's own time, which no process knows:

- where no clock leaps, no two processes have the lease at the same time, as each of them sees it;
- in the log every entry follows from the one before, whoever wrote it and however late;
- once the trouble is over, somebody has the lease within a bounded time;
- what lies in the directory does not grow.
"""

from __future__ import annotations

import errno
import json
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from tests.support.interleaving import Stage
from trailmark.errors import StorageError
from trailmark.leases import Holder, Lease
from trailmark.log import LocalStorage
from trailmark.settings import SECOND
from trailmark.testing.disk import SimulatedDisk

TERM_US = SECOND
#: How long there is trouble, and how long it takes at most until somebody has the lease again.
_TROUBLE_US = 6 * TERM_US
_PATIENCE_US = 3 * TERM_US
_HOUR_US = 3_600 * SECOND
#: Numbers are taken from the newest two, by each process once more, and by one that slept.
_MOST_FILES_EACH = 2


class Killed(BaseException):
    """The process is gone. Not an `Exception`, so that nothing swallows it."""


@dataclass
class LeaseCase:
    """What may happen, and how often."""

    rng: random.Random
    leaps: bool
    sleepy: float
    faulty: float
    deadly: float
    actors: int

    @classmethod
    def of(cls, seed: int) -> LeaseCase:
        rng = random.Random(seed)
        return cls(
            rng,
            leaps=rng.random() < 0.5,
            sleepy=rng.choice((0.0, 0.002, 0.01, 0.03)),
            faulty=rng.choice((0.0, 0.01, 0.05)),
            deadly=rng.choice((0.0, 0.003, 0.01)),
            actors=rng.choice((2, 2, 3)),
        )


@dataclass
class World:
    """The time as it is, and what has become of everybody."""

    case: LeaseCase
    disk: SimulatedDisk
    now_us: float = 0.0
    wakes_us: list[float] = field(default_factory=list)
    killed: set[int] = field(default_factory=set)
    #: Who believed to have the lease, and from when to when.
    held: list[tuple[str, float, float]] = field(default_factory=list)
    #: By whom entries of the log were published.
    written: dict[int, str] = field(default_factory=dict)
    fatal: int = 0
    naps: int = 0

    @property
    def is_troubled(self) -> bool:
        return self.now_us < _TROUBLE_US

    @property
    def is_over(self) -> bool:
        return self.now_us > _TROUBLE_US + _PATIENCE_US

    def __call__(self, ready: Sequence[int], current: int | None) -> int:
        """Says who goes on, and what happens meanwhile."""
        rng = self.case.rng
        self.now_us += rng.uniform(0, TERM_US / 100)
        if self.is_troubled:
            self._trouble(current)
        else:
            self.wakes_us = [min(each, self.now_us + TERM_US / 4) for each in self.wakes_us]
        while True:
            awake = [each for each in ready if self.wakes_us[each] <= self.now_us]
            if awake:
                break
            self.now_us = min(self.wakes_us[each] for each in ready)
        if current in awake and rng.random() < 0.5:
            return current
        return rng.choice(awake)

    def _trouble(self, current: int | None) -> None:
        rng, case = self.case.rng, self.case
        if current is not None and rng.random() < case.sleepy:
            self.naps += 1
            longest = rng.choice((TERM_US / 2, 2 * TERM_US, 2 * TERM_US, _HOUR_US))
            self.wakes_us[current] = min(self.now_us + rng.uniform(0, longest), _TROUBLE_US)
        if current is not None and rng.random() < case.deadly:
            self.fatal += 1
            self.killed.add(current)
        if rng.random() < case.faulty:
            call = rng.randint(1, 6)
            if rng.random() < 0.5:
                self.disk.fail_on(call, rng.choice((errno.EIO, errno.ETIMEDOUT)))
            else:
                self.disk.lose_answer(call, rng.choice((None, errno.EIO)))


class _TimedStage(Stage):
    """Ends whoever is killed at the next call that others could notice."""

    def __init__(self, world: World) -> None:
        super().__init__(world.disk, world)
        self._world = world

    def turn(self, me: int) -> None:
        super().turn(me)
        if me in self._world.killed:
            self._world.killed.discard(me)
            raise Killed


@dataclass
class _Clock:
    """A process's own: begins anywhere, runs a little too fast or slow, may leap forward."""

    world: World
    turn: Callable[[], None]
    begins_us: float
    speed: float
    ahead_us: float = 0.0

    def __call__(self) -> float:
        self.turn()  # it may sleep between a call and its look at the clock, too
        return self.read()

    def read(self) -> float:
        rng = self.world.case.rng
        if self.world.case.leaps and self.world.is_troubled and rng.random() < 0.005:
            self.ahead_us += rng.uniform(0, 3 * TERM_US)
        return self.begins_us + self.ahead_us + self.world.now_us * self.speed


@dataclass
class _Process:
    """One that wants the lease, and goes on with the log while it has it, or just had it."""

    world: World
    stage: _TimedStage
    me: int
    storage: LocalStorage
    lives: int = 0

    def run(self) -> None:
        while not self.world.is_over:
            try:
                self._live()
            except Killed:
                self._sleep(self.world.case.rng.uniform(0, TERM_US))

    def _live(self) -> None:
        rng = self.world.case.rng
        self.lives += 1
        holder = Holder(f"{self.me}-{self.lives}", f"{self.me}", "host", self.lives)
        begins_us, speed = rng.uniform(0, 1e12), rng.uniform(0.98, 1.02)
        clock = _Clock(self.world, lambda: self.stage.turn(self.me), begins_us, speed)
        lease = Lease(self.storage, holder, TERM_US, now_us=clock, clock=lambda: 0)
        newest = -1
        while not self.world.is_over:
            try:
                has_it = lease.renew() if lease.own is not None else lease.take()
                if has_it:
                    self._believe(holder, lease, clock)
                # A zombie goes on with what it was doing, however long it has slept.
                if has_it or lease.own is not None:
                    newest = self._write(holder, newest)
            except StorageError:
                pass  # the next attempt finds out what came of it
            share = 4 if lease.own is not None else 8
            self._sleep(rng.uniform(0.5, 1) * TERM_US / share)

    def _believe(self, holder: Holder, lease: Lease, clock: _Clock) -> None:
        left_us = (lease._until_us - clock.read()) / clock.speed
        if left_us > 0:
            self.world.held.append((holder.token, self.world.now_us, self.world.now_us + left_us))

    def _write(self, holder: Holder, newest: int) -> int:
        """Does the entry after the newest it knows of; returns the newest it knows of then."""
        before = "" if newest < 0 else self._read(newest)["token"]
        entry = json.dumps({"after": before, "token": f"{holder.token}:{newest + 1}"})
        # As at every publication: after an error it is repeated, and answered from the log.
        if self.storage.publish(f"log/{newest + 1:06d}", [entry.encode()]):
            self.world.written.setdefault(newest + 1, holder.token)
        return newest + 1

    def _read(self, number: int) -> dict[str, str]:
        found: dict[str, str] = json.loads(bytes(self.storage.read(f"log/{number:06d}")))
        return found

    def _sleep(self, us: float) -> None:
        self.world.wakes_us[self.me] = self.world.now_us + us
        while True:
            try:
                self.stage.turn(self.me)
            except Killed:
                if self.lives == 0:
                    raise
                continue  # it is asleep, and begins anew when it wakes
            return


def run_lease_case(seed: int) -> World:
    """Runs and judges a case; returns what there was to see."""
    case = LeaseCase.of(seed)
    disk = SimulatedDisk()
    world = World(case, disk, wakes_us=[0.0] * case.actors)
    stage = _TimedStage(world)

    def actor(me: int) -> Callable[[LocalStorage], None]:
        return lambda storage: _Process(world, stage, me, storage).run()

    try:
        outcomes = stage.run({str(me): actor(me) for me in range(case.actors)})
        for outcome in outcomes.values():
            outcome.value()
        disk.relax()
        _judge(world)
    except BaseException:
        print(f"TRAILMARK_SEED={seed} TRAILMARK_CASES=1 repeats it. The case:\n{case!r}")
        raise
    return world


def _judge(world: World) -> None:
    if not world.case.leaps:
        _judge_alone(world.held)
    storage = world.disk.storage()
    _judge_log(storage)
    from_us, to_us = _TROUBLE_US, _TROUBLE_US + _PATIENCE_US
    assert any(start < to_us and end > from_us for _, start, end in world.held), "nobody has it"
    files = storage.list("terms")
    assert len(files) <= 2 + _MOST_FILES_EACH * world.case.actors, [each.name for each in files]


def _judge_alone(held: Sequence[tuple[str, float, float]]) -> None:
    last: dict[str, float] = {}
    for token, start, end in sorted(held, key=lambda each: each[1]):
        others = max((until for other, until in last.items() if other != token), default=0.0)
        assert start >= others, f"{token} has it at {start}, and another one until {others}"
        last[token] = max(end, last.get(token, 0.0))


def _judge_log(storage: LocalStorage) -> None:
    before = ""
    for number, file in enumerate(storage.list("log")):
        assert file.name == f"{number:06d}", "no gap"
        entry = json.loads(bytes(storage.read(f"log/{file.name}")))
        assert entry["after"] == before, f"entry {number} follows another one than is there"
        before = entry["token"]
