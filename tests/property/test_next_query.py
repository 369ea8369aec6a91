"""Random lives of chains of queries, each of which reads the tentative answers of the one before:
what stands of them, and that what is stable does not notice."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from tests.support.answered import Answered
from tests.support.cases import Case
from tests.support.crashes import kept_short
from tests.support.next_query import (
    NEXT,
    Follower,
    Places,
    Scripted,
    count_windows,
    scripted_steps,
    time_windows,
)
from tests.support.orders import TIMED
from tests.support.seeds import seeds
from trailmark.testing.disk import SimulatedDisk

_CASES = 8

_SECOND: dict[str, Callable[[random.Random], Case]] = {
    "time windows": lambda rng: time_windows(NEXT, "total", rng.choice((2, 5)), rng.choice((0, 2))),
    "count windows": lambda rng: count_windows(NEXT, "total", rng.choice((1, 2, 3))),
}


class Chain:
    """Three queries: the first scripted, the others at their own pace."""

    def __init__(self, rng: random.Random, kind: str, *, fails: bool = True) -> None:
        self.rng, self.places = rng, Places()
        disk = self.places.disks["a"] = SimulatedDisk()
        steps = scripted_steps(rng, rng.choice((12, 20, 30)))
        if not fails:
            steps = [each._replace(tentative=(), since=None) for each in steps]
        case = time_windows(TIMED, "price", rng.choice((1, 3)))
        retained = rng.choice((None, 1, 3))
        self.first = Answered(disk.storage(), steps, case, retain_batches=retained)
        begin = Scripted(self.first)
        second = Follower(self.places, "b", begin, "/a", _SECOND[kind](rng), rng)
        third = Follower(self.places, "c", second, "/b", time_windows(NEXT, "total", 5), rng)
        self.followers = [second, third]

    def live(self) -> None:
        """To the end, one batch of any of them after another."""
        self.begin()
        while self.left():
            self.rng.choice((self.go_on, self.follow))()
        self.catch_up()

    def begin(self) -> None:
        """Each has a batch, and is read by the next."""
        second, third = self.followers
        self.first.run(1)
        second.begin()
        second.tick()
        third.begin()

    def catch_up(self) -> None:
        """All of them to the end, one after another, each in as few batches as it takes."""
        self.first.run()
        for each in self.followers:
            while each.follow():
                pass
            each.tick()
            each.tick()
            each.stop()

    def go_on(self) -> None:
        self.first.run(min(self.rng.choice((1, 1, 2, 3)), self.left()))

    def left(self) -> int:
        return len(self.first.steps) - len(self.first.reports)

    def follow(self) -> None:
        meanwhile = self.go_on if self.rng.random() < 0.3 else None
        self.rng.choice(self.followers).follow(meanwhile)


@pytest.mark.parametrize("kind", _SECOND)
def test_what_stands_of_a_query_stands_in_the_next_once_and_nothing_else(
    kind: str,
) -> None:
    """Through crashes, restarts and trims; every batch read again is the same. In the end nothing
    is tentative, and what is stable is that of a chain in which nothing ever was."""
    crashes = given_again = stable = tentative = 0
    for seed in seeds(_CASES):
        chain, twin = (Chain(random.Random(seed), kind, fails=fails) for fails in (True, False))
        with kept_short():
            chain.live()
            twin.begin()
            twin.catch_up()
        for own, other in zip(chain.followers, twin.followers, strict=True):
            assert own.stands_from(len(own.reports) - 1) is None, f"seed {seed}"
            assert own.stable() == other.stable(), f"seed {seed}"
            stable += sum(own.stable().values())
            crashes, given_again = crashes + own.crashes, given_again + own.given_again
            tentative += sum(len(own.tentative(batch)) for batch in range(len(own.reports)))
    assert crashes > 0
    assert given_again > 0
    assert stable > 100
    assert tentative > 20
