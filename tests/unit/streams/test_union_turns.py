"""The turns that replicas of a union take: in real time, with the threads and files that they have
on Spark; and how long one may last, by a clock of the test."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.spark_runs import wait_until
from tests.support.unreachable import Line
from trailmark.leases import Keeper, newest_term, open_lease
from trailmark.streams.asking import InTurn
from trailmark.streams.union.decision import NOTHING_YET, Decision, Turn
from trailmark.streams.union.turns import Turns, TurnsAt
from trailmark.testing.disk import SimulatedDisk

_TERM_US, _WITHIN_US = 400_000, 1_000_000
_MINUTE_US = 60_000_000


class _Pair:
    """Two replicas on one disk, whose keepers do nothing but when they are told to."""

    def __init__(self) -> None:
        disk = SimulatedDisk()
        self.now_us = 0.0
        self.lines = [Line(disk), Line(disk)]
        self.keepers: list[list[Keeper]] = [[], []]
        self.turns = [self._turns(place) for place in (0, 1)]

    def _turns(self, place: int) -> Turns:
        def begin(keeper: Keeper) -> None:
            self.keepers[place].append(keeper)
            keeper.step()

        return Turns(
            TurnsAt("/turns", _TERM_US),
            f"union-{place}",
            _WITHIN_US,
            storage=self.lines[place].storage(),
            begin=begin,
            hands=InTurn(),
            now_us=lambda: self.now_us,
        )

    def pass_time(self, us: float, step_us: float = _TERM_US / 8) -> None:
        """All keepers go on meanwhile, as their threads would."""
        end_us = self.now_us + us
        while self.now_us < end_us:
            self.now_us += step_us
            for keeper in self.keepers[0][-1:] + self.keepers[1][-1:]:
                if keeper.state.value in ("waits", "active"):
                    keeper.step()


def test_one_has_it_and_the_other_knows_whose_it_is() -> None:
    pair = _Pair()
    one, other = pair.turns
    assert one.ask() == Turn(is_own=True)
    waits = other.ask()
    assert not waits.is_own
    assert waits.whose.startswith("union-0 (")
    assert waits.line == f"waits for its turn, {waits.whose} has it"
    one.give_back()
    pair.pass_time(_TERM_US / 4)
    assert other.ask().is_own


def test_whoever_gives_it_back_and_wants_it_again_lets_those_go_first_who_wait() -> None:
    pair = _Pair()
    one, other = pair.turns
    assert one.ask().is_own
    other.ask()
    one.give_back()
    assert one.ask() == Turn(is_own=False), "nobody has it, and somebody is about to"
    pair.pass_time(_TERM_US / 4)
    assert other.ask().is_own
    other.give_back()
    pair.pass_time(_TERM_US)
    assert one.ask().is_own, "nobody else wanted it"


def test_a_turn_ends_when_nobody_asks_for_it_and_is_asked_for_anew() -> None:
    """Its batch hangs: the process is there, and its union is not."""
    pair = _Pair()
    one, other = pair.turns
    assert one.ask().is_own
    assert not other.ask().is_own
    pair.pass_time(_MINUTE_US / 2)
    assert one.ask().is_own, "it is renewed for whoever asks"
    pair.pass_time(_MINUTE_US / 2)
    assert not other.ask().is_own
    pair.pass_time(_MINUTE_US / 2 + _TERM_US)
    assert other.ask().is_own
    assert not one.ask().is_own


def test_nobody_waits_who_does_not_ask() -> None:
    pair = _Pair()
    one, other = pair.turns
    one.ask()
    other.ask()
    for _ in range(4):
        pair.pass_time(_MINUTE_US / 3)
        one.ask()
    one.give_back()
    pair.pass_time(2 * _TERM_US)
    newest = newest_term(pair.lines[0].storage())
    assert newest is not None
    assert newest.is_released, "the other has taken no turn that it would not use"
    assert other.ask().is_own


def test_catching_up_does_not_last_for_ever() -> None:
    pair = _Pair()
    one, other = pair.turns
    assert one.ask().is_own
    other.ask()
    for _ in range(5):
        assert one.keep() == Turn(is_own=True)
        pair.pass_time(_MINUTE_US / 5)
        other.ask()
    assert one.keep() is None
    pair.pass_time(_TERM_US)
    assert other.ask().is_own
    assert one.keep() is None, "what is not had is not kept"


def test_one_that_cannot_ask_waits_and_knows_why() -> None:
    pair = _Pair()
    one, other = pair.turns
    pair.lines[0].cut(errno.EHOSTUNREACH)
    turn = one.ask()
    assert not turn.is_own
    assert "No route to host" in turn.problem
    assert turn.line.startswith("waits for its turn and cannot ask: ")
    assert other.ask().is_own
    pair.lines[0].mend()
    pair.pass_time(_TERM_US)
    assert one.ask().whose.startswith("union-1 (")


@pytest.fixture
def real(tmp_path: Path) -> Iterator[list[Turns]]:
    path, _ = open_lease(tmp_path / "turns")
    made = [Turns(TurnsAt(path, _TERM_US), name, _WITHIN_US, 5.0) for name in ("one", "other")]
    yield made
    for each in made:
        each.end()


def test_in_real_time_a_turn_is_had_at_once_kept_and_handed_over(real: list[Turns]) -> None:
    one, other = real
    assert one.ask().is_own, "nobody has it, and that is waited for"
    other._patience_s = 0
    assert not other.ask().is_own
    one.give_back()
    wait_until("the other has its turn", lambda: other.ask().is_own, 30)
    assert not one.ask().is_own
    other.end()
    wait_until("one has it when the other's process has ended", lambda: one.ask().is_own, 30)


@pytest.mark.parametrize(
    "turn", [Turn(True), Turn(False, "b (host:1)"), Turn(False, problem="no answer")]
)
def test_a_decision_remembers_whose_turn_it_was(turn: Turn) -> None:
    decision = Decision(3, 10, {}, turn=turn)
    assert Decision.from_json(decision.to_json()) == decision
    assert decision.waits_for_turn is not turn.is_own
    assert "turn" not in NOTHING_YET.to_json()
    for broken in ({"is_own": True}, {"is_own": True, "whose": 1, "problem": ""}, [True]):
        with pytest.raises((KeyError, ValueError)):
            Decision.from_json({**decision.to_json(), "turn": broken})
