"""Actors that share one simulated disk, and a scheduler that says at every call who goes on.

An actor stands for a process: a function that gets a storage of its own. Each runs in a thread, but
only one at a time: before every call that others could notice it hands the baton back, and a
`Chooser` says who gets it. So a schedule is a list of choices, and the same choices give the same
run. What only its writer sees, such as bytes of a temporary, is no place to switch at.
"""

from __future__ import annotations

import random
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from trailmark.log.storage import LocalStorage, Part
from trailmark.log.storage.file_system import DirectoryEntry
from trailmark.testing.disk import ROOT, SimulatedDisk

Actor = Callable[[LocalStorage], object]

#: A run of a few actors takes hundreds of calls; more than this is one that does not end.
_MOST_CALLS = 50_000


class Stopped(BaseException):
    """The run is over for this actor. Not an `Exception`, so that nothing swallows it."""


@dataclass(frozen=True)
class Choice:
    """One decision: who could have gone on, who was going, who goes."""

    ready: tuple[int, ...]
    current: int | None
    chosen: int

    def is_preemption(self, chosen: int) -> bool:
        """Whether to choose this one takes the baton from somebody who could go on."""
        return self.current in self.ready and chosen != self.current


class Chooser(Protocol):
    """Says who goes on; ``current`` is who went on last, None at the beginning."""

    def __call__(self, ready: Sequence[int], current: int | None) -> int: ...


@dataclass
class Outcome:
    """What became of an actor: what it returned, or what it raised."""

    returned: Any = None
    raised: BaseException | None = None

    def value(self) -> Any:
        if self.raised is not None:
            raise self.raised
        return self.returned


class Stage:
    """Runs actors over one disk, as a chooser says; afterwards ``choices`` are those it made."""

    def __init__(self, disk: SimulatedDisk, choose: Chooser) -> None:
        self.disk = disk
        self.choices: list[Choice] = []
        self._choose = choose
        self._gates: list[threading.Lock] = []
        self._ready: set[int] = set()
        self._current: int | None = None
        self._over = _closed_gate()
        self._failure: BaseException | None = None

    def run(self, actors: Mapping[str, Actor]) -> dict[str, Outcome]:
        """Everybody from beginning to end."""
        outcomes = {name: Outcome() for name in actors}
        self._gates = [_closed_gate() for _ in actors]
        self._ready = set(range(len(actors)))
        threads = [
            threading.Thread(target=self._play, args=(number, actor, outcomes[name]), name=name)
            for number, (name, actor) in enumerate(actors.items())
        ]
        for thread in threads:
            thread.start()
        self._pass_on()
        self._over.acquire()
        for thread in threads:
            thread.join()
        if self._failure is not None:
            raise self._failure
        return outcomes

    def turn(self, me: int) -> None:
        """Called by an actor before it does something that others could notice."""
        if self._pass_on() != me:
            self._gates[me].acquire()
        self._check_not_over()

    def _play(self, me: int, actor: Actor, outcome: Outcome) -> None:
        files = _Turns(self.disk, lambda: self.turn(me))
        try:
            self._gates[me].acquire()
            self._check_not_over()
            outcome.returned = actor(LocalStorage(ROOT, file_system=files))
        except BaseException as error:  # noqa: BLE001  (whoever looks at the outcome judges)
            outcome.raised = error
        self._ready.discard(me)
        if self._ready:
            self._pass_on()
        else:
            self._over.release()

    def _pass_on(self) -> int:
        """Give the baton to whoever is chosen."""
        ready = sorted(self._ready)
        try:
            if len(self.choices) == _MOST_CALLS:
                raise AssertionError(f"no end after {_MOST_CALLS:,} calls")
            chosen = ready[0] if self._failure else self._choose(ready, self._current)
        except BaseException as error:  # noqa: BLE001  (raised again by `run`)
            self._failure = error
            chosen = ready[0]
        before, self._current = self._current, chosen
        self.choices.append(Choice(tuple(ready), before, chosen))
        if chosen != before:
            self._gates[chosen].release()
        return chosen

    def _check_not_over(self) -> None:
        if self._failure is not None:
            raise Stopped


def _closed_gate() -> threading.Lock:
    gate = threading.Lock()
    gate.acquire()
    return gate


# Who goes on.


@dataclass
class Following:
    """Follows a list of choices, then lets everybody go on as long as they can."""

    prefix: Sequence[int] = ()
    _made: int = 0

    def __call__(self, ready: Sequence[int], current: int | None) -> int:
        self._made += 1
        if self._made <= len(self.prefix):
            return self.prefix[self._made - 1]
        return current if current is not None and current in ready else ready[0]


@dataclass
class Wandering:
    """Switches now and then, to anybody."""

    rng: random.Random
    chance: float

    def __call__(self, ready: Sequence[int], current: int | None) -> int:
        if current is not None and current in ready and self.rng.random() >= self.chance:
            return current
        return self.rng.choice(ready)


@dataclass
class Ranking:
    """The first in rank goes on; at a few random calls whoever is going becomes the last.

    Whoever becomes the last sleeps until all others are done, as a process that was thought dead.
    """

    rng: random.Random
    changes: int
    calls: int
    _ranks: dict[int, float] = field(default_factory=dict)
    _made: int = 0

    def __post_init__(self) -> None:
        self._at = {self.rng.randrange(self.calls) for _ in range(self.changes)}

    def __call__(self, ready: Sequence[int], current: int | None) -> int:
        for each in ready:
            self._ranks.setdefault(each, self.rng.random())
        if self._made in self._at and current is not None:
            self._ranks[current] = -float(self._made)
        self._made += 1
        return max(ready, key=lambda each: self._ranks[each])


def random_chooser(rng: random.Random, calls: int) -> Chooser:
    """One of the two random ones, for a run of about so many calls."""
    if rng.random() < 0.5:
        return Wandering(rng, rng.choice((0.05, 0.2, 0.5, 1.0)))
    return Ranking(rng, rng.choice((1, 2, 3, 5)), calls)


def every_schedule(
    run: Callable[[Chooser], Sequence[Choice]], preemptions: int
) -> Iterator[tuple[int, ...]]:
    """Runs every schedule in which the baton is taken from somebody at most so many times.

    Yields each as its list of choices, after it was run, those with fewer switches first. Most
    faults need only one or two at the right places, and so few schedules can all be tried.
    """
    waiting: deque[tuple[int, ...]] = deque([()])
    while waiting:
        prefix = waiting.popleft()
        choices = run(Following(prefix))
        yield prefix
        spent = 0
        made = [choice.chosen for choice in choices]
        for at, choice in enumerate(choices):
            if at >= len(prefix):
                waiting += [
                    (*made[:at], other)
                    for other in choice.ready
                    if other != choice.chosen and spent + choice.is_preemption(other) <= preemptions
                ]
            spent += choice.is_preemption(choice.chosen)


@dataclass
class _Turns:
    """The file system as one actor has it: waits for its turn before calls that others notice."""

    disk: SimulatedDisk
    turn: Callable[[], None]

    def _turn_at(self, path: str) -> None:
        if not path.rpartition("/")[2].startswith("."):  # not a temporary
            self.turn()

    def create(self, path: str) -> int:
        return self.disk.create(path)

    def open(self, path: str) -> int:
        return self.disk.open(path)

    def links(self, descriptor: int) -> int:
        return self.disk.links(descriptor)

    def write(self, descriptor: int, parts: Sequence[Part]) -> int:
        return self.disk.write(descriptor, parts)

    def cut(self, descriptor: int, size: int) -> None:
        self.disk.cut(descriptor, size)

    def sync(self, descriptor: int) -> None:
        self.disk.sync(descriptor)

    def close(self, descriptor: int) -> None:
        self.disk.close(descriptor)

    def link(self, source: str, target: str) -> None:
        self._turn_at(target)
        self.disk.link(source, target)

    def is_same(self, path: str, other: str) -> bool:
        self._turn_at(other)
        return self.disk.is_same(path, other)

    def rename(self, source: str, target: str) -> None:
        self.turn()
        self.disk.rename(source, target)

    def unlink(self, path: str) -> None:
        self._turn_at(path)
        self.disk.unlink(path)

    def make_directory(self, path: str) -> None:
        self.disk.make_directory(path)

    def sync_file(self, path: str) -> None:
        self._turn_at(path)
        self.disk.sync_file(path)

    def sync_directory(self, path: str) -> None:
        self.disk.sync_directory(path)

    def read(self, path: str, offset: int, length: int | None) -> tuple[memoryview, int]:
        self._turn_at(path)
        return self.disk.read(path, offset, length)

    def size(self, path: str) -> int:
        self._turn_at(path)
        return self.disk.size(path)

    def list_directory(self, path: str) -> list[DirectoryEntry]:
        self.turn()
        return self.disk.list_directory(path)
