"""Replicas of a union that hold new rows back while they correct take turns, in simulated time:
random failures of streams, replicas and the lease, and what each of them leads to."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import get_args

import pytest

from tests.support.seeds import reported, seeds
from tests.support.streams import often
from tests.support.turns import TERM, Replicas
from tests.support.union_answers import LOOK, Life
from trailmark.streams.union.ahead import Phase
from trailmark.streams.union.answering import Answering, OnFailure

_SLICE, _WITHIN = 2 * LOOK, 10 * LOOK
#: Looks for which a replica waits for a turn whose holder is gone, and a few more.
_TERM_LOOKS = TERM // LOOK + 3
#: Beyond all times of a case.
_FAR = 10**12


def _replicas(count: int = 2, on_failure: OnFailure = "process") -> Replicas:
    """Two streams that have spoken, and replicas that correct a few rows at a look."""
    found = Replicas.of(
        [{"w0": 0}, {"w0": 0}],
        _SLICE,
        Answering(_WITHIN, on_failure, "suspend"),
        count,
        most_rows=4,
        decisions_per_look=1,
    )
    _go_on(found, 6, 0, 1)
    return found


def _go_on(replicas: Replicas, looks: int, *places: int) -> None:
    """Some streams have a row for every look, and the others nothing."""
    for _ in range(looks):
        for place in places:
            replicas.commit(place, [replicas.now])
        replicas.look()


def _fail(replicas: Replicas, looks: int = 40) -> None:
    """A stream is away for so long, and is back."""
    _go_on(replicas, looks, 0)
    assert all(life.decision.phase is Phase.UP_FAILURE for life in replicas.lives)
    replicas.commit(1, [replicas.now - LOOK * n for n in range(looks, 0, -1)])


def _correcting(replicas: Replicas) -> list[int]:
    return [n for n, each in enumerate(replicas.lives) if each.decision.phase is _CORRECTS]


_CORRECTS = Phase.STABILIZATION


def _until_corrected(replicas: Replicas, looks: int = 200) -> None:
    for _ in range(looks):
        _go_on(replicas, 1, 0, 1)
        if all(each.decision.phase is Phase.STABLE for each in replicas.lives):
            break
    for life in replicas.lives:
        assert life.decision.phase is Phase.STABLE
        assert life.stable == life.oracle.union.rows()


def _new_rows(life: Life, looks: int) -> int:
    """How many tentative rows were given out in the last looks."""
    return sum(each.moment > life.now - looks * LOOK for each in life.tentative)


@pytest.mark.parametrize("on_failure", get_args(OnFailure))
def test_one_corrects_after_the_other_and_meanwhile_the_other_answers(
    on_failure: OnFailure,
) -> None:
    replicas = _replicas(on_failure=on_failure)
    _fail(replicas)
    _go_on(replicas, 15, 0, 1)
    assert _correcting(replicas) == [0]
    first, second = replicas.lives
    assert _new_rows(first, 10) == 0
    assert _new_rows(second, 10) >= 16, "two streams, and a slice at a look"
    turn = second.decision.turn
    assert turn is not None
    assert not turn.is_own
    assert turn.whose.startswith("union (")
    _until_corrected(replicas)
    expected = [Phase.STABLE, Phase.UP_FAILURE, Phase.STABILIZATION, Phase.STABLE]
    assert [life.phases for life in replicas.lives] == [expected, expected]
    assert replicas.waited_for_other > 10
    assert replicas.waited_for_none <= 2


def test_who_dies_while_it_corrects_is_replaced_when_the_lease_runs_out() -> None:
    replicas = _replicas()
    _fail(replicas)
    _go_on(replicas, 5, 0, 1)
    replicas.kill(0)
    replicas.stopped = {0}
    _go_on(replicas, 1, 0, 1)
    assert replicas.lives[1].decision.waits_for_turn, "the dead one's term still runs"
    _go_on(replicas, _TERM_LOOKS, 0, 1)
    assert replicas.lives[1].decision.phase is _CORRECTS
    replicas.stopped = set()
    _go_on(replicas, 2, 0, 1)
    assert _correcting(replicas) == [1], "whoever is back waits for its turn again"
    assert replicas.lives[0].decision.phase is Phase.UP_FAILURE
    _until_corrected(replicas)


def test_who_sleeps_through_its_turn_answers_when_it_wakes_and_corrects_later() -> None:
    replicas = _replicas()
    _fail(replicas)
    _go_on(replicas, 5, 0, 1)
    assert _correcting(replicas) == [0]
    replicas.stopped = {0}
    _go_on(replicas, _TERM_LOOKS, 0, 1)
    assert replicas.lives[1].decision.phase is _CORRECTS
    replicas.stopped = set()
    _go_on(replicas, 1, 0, 1)
    assert _correcting(replicas) == [1]
    assert replicas.lives[0].phases[-2:] == [_CORRECTS, Phase.UP_FAILURE]
    _go_on(replicas, 3, 0, 1)
    assert _new_rows(replicas.lives[0], 2) > 0
    _until_corrected(replicas)


def test_one_that_cannot_ask_answers_and_says_why_it_waits() -> None:
    replicas = _replicas()
    replicas.cut_lease(0)
    _fail(replicas)
    _go_on(replicas, 12, 0, 1)
    assert _correcting(replicas) == [1]
    turn = replicas.lives[0].decision.turn
    assert turn is not None
    assert "No route to host" in turn.problem
    assert _new_rows(replicas.lives[0], 10) >= 16
    replicas.cut_lease()
    _until_corrected(replicas)


def test_if_none_can_ask_all_answer_and_nothing_is_replaced_until_one_can() -> None:
    replicas = _replicas()
    replicas.cut_lease(0, 1)
    _fail(replicas)
    stood = [life.decision.released_us for life in replicas.lives]
    _go_on(replicas, 25, 0, 1)
    assert _correcting(replicas) == []
    assert [life.decision.released_us for life in replicas.lives] == stood
    assert all(_new_rows(life, 10) >= 16 for life in replicas.lives)
    replicas.cut_lease()
    _until_corrected(replicas)


def test_one_that_is_cut_off_while_it_corrects_stops_before_another_begins() -> None:
    replicas = _replicas()
    _fail(replicas)
    _go_on(replicas, 3, 0, 1)
    replicas.cut_lease(0)
    _go_on(replicas, _TERM_LOOKS, 0, 1)
    assert _correcting(replicas) == [1]
    assert replicas.lives[0].decision.waits_for_turn
    replicas.cut_lease()
    _until_corrected(replicas)


def test_whoever_misses_a_stream_again_gives_its_turn_back() -> None:
    """It answers without that stream, so another one may correct."""
    replicas = _replicas()
    _fail(replicas)
    _go_on(replicas, 3, 0, 1)
    assert _correcting(replicas) == [0]
    replicas.lives[0].cut(1, None)
    _go_on(replicas, _TERM_LOOKS, 0, 1)
    assert not replicas.seats[0].has_turn()
    assert replicas.lives[1].decision.phase is _CORRECTS
    replicas.lives[0].mend(1)
    _until_corrected(replicas)


def test_every_one_of_three_has_its_turn() -> None:
    replicas = _replicas(3)
    _fail(replicas)
    _until_corrected(replicas, 600)


def test_a_turn_is_kept_until_what_has_come_meanwhile_is_given_out_too() -> None:
    """It is as late as what was suspended."""
    replicas = _replicas()
    _fail(replicas, 60)
    while replicas.lives[0].decision.phase is not Phase.STABLE:
        _go_on(replicas, 1, 0, 1)
    life = replicas.lives[0]
    behind = 0
    while life.decision.turn is not None:
        assert replicas.seats[0].has_turn()
        assert replicas.lives[1].decision.waits_for_turn
        behind += 1
        _go_on(replicas, 1, 0, 1)
    assert behind > 3
    assert life.decision.released_us is not None
    assert life.decision.released_us >= life.now - 2 * _SLICE
    _go_on(replicas, 3, 0, 1)
    assert replicas.lives[1].decision.phase is _CORRECTS


def test_a_run_that_ends_waits_for_no_turn() -> None:
    """It goes on with what is there, and whoever started it has nobody to answer meanwhile."""
    replicas = _replicas()
    _fail(replicas)
    _go_on(replicas, 3, 0, 1)
    assert _correcting(replicas) == [0]
    other = replicas.lives[1]
    other.end()
    assert other.decision.phase is Phase.STABLE
    assert other.stable == other.oracle.union.rows()


def test_waiting_and_whose_turn_it_is_are_told(caplog: pytest.LogCaptureFixture) -> None:
    replicas = _replicas()
    _fail(replicas)
    _until_corrected(replicas)
    told = [each for each in caplog.messages if each.startswith("union: ")]
    (waits,) = [each for each in told if "waits for its turn" in each]
    assert waits.startswith("union: UP_FAILURE. All streams are back, and it waits for its turn, ")
    assert " has it. Until then it goes on answering" in waits
    corrects = [each for each in told if each.startswith("union: STABILIZATION")]
    assert len(corrects) == 2
    assert all(each.endswith("replaced, in its turn among the replicas.") for each in corrects)


# Random cases


@dataclass
class _Case:
    """What a seed asks for."""

    seed: int
    inputs: int
    replicas: int
    interval: int
    answering: Answering
    most_rows: int | None
    decisions_per_look: int | None
    steps: int
    #: How often what happens at a look.
    silences: float
    cuts: float
    lease_cuts: float
    kills: float
    naps: float

    @classmethod
    def of(cls, seed: int) -> _Case:
        rng = random.Random(seed)
        within = rng.choice([100_000, 333_333, 500_000])
        return cls(
            seed,
            rng.randint(2, 3),
            rng.choice([2, 2, 3]),
            rng.choice([7_000, 100_000, 300_000]),
            Answering(within, rng.choice(get_args(OnFailure)), "suspend"),
            rng.choice([None, 1, 5]),
            rng.choice([None, 1, 1, 2]),
            rng.randint(40, 90),
            rng.choice([0.03, 0.08]),
            rng.choice([0, 0.01]),
            rng.choice([0, 0.01, 0.05]),
            rng.choice([0, 0.01, 0.03]),
            rng.choice([0, 0.01]),
        )


class _Run:
    """Replicas through a random life."""

    def __init__(self, case: _Case) -> None:
        self.case = case
        self.rng = random.Random(f"run {case.seed}")
        self.replicas = Replicas.of(
            [{"w0": 10_000} for _ in range(case.inputs)],
            case.interval,
            case.answering,
            case.replicas,
            most_rows=case.most_rows,
            decisions_per_look=case.decisions_per_look,
        )
        #: For how many looks each stream is silent, each line is cut, and each replica is stopped.
        self.silent = [0] * case.inputs
        self.cut: dict[tuple[int, int], int] = {}
        self.cut_off = [0] * case.replicas
        self.asleep = [0] * case.replicas
        self.held: list[list[int]] = [[] for _ in range(case.inputs)]

    def step(self) -> None:
        rng, case = self.rng, self.case
        for place in range(case.inputs):
            self._write(place)
        self.cut_off = [self._lasts(left, case.lease_cuts) for left in self.cut_off]
        self.replicas.cut_lease(*(n for n, left in enumerate(self.cut_off) if left))
        self.asleep = [self._lasts(left, case.naps) for left in self.asleep]
        self.replicas.stopped = {n for n, left in enumerate(self.asleep) if left}
        for number, life in enumerate(self.replicas.lives):
            self._cut(number, life)
            if rng.random() < case.kills:
                self.replicas.kill(number)
            if rng.random() < 0.05 and not life.oracle.away:
                life.read_again()
        self.replicas.look()

    def _lasts(self, left: int, begins: float, looks: Sequence[int] = (2, 10, 30)) -> int:
        """For how many looks more something lasts."""
        if left:
            return left - 1
        return self.rng.choice(looks) if self.rng.random() < begins else 0

    def _write(self, place: int) -> None:
        now, was = self.replicas.now, self.silent[place]
        self.silent[place] = self._lasts(was, self.case.silences, [5, 20, 40])
        self.held[place].append(now - self.rng.randint(0, 10_000))
        if not self.silent[place] and self.rng.random() < 0.5:
            self.replicas.commit(place, self.held[place])
            self.held[place] = []

    def _cut(self, number: int, life: Life) -> None:
        for place in range(self.case.inputs):
            left = self.cut.get((number, place), 0)
            self.cut[number, place] = now = self._lasts(left, self.case.cuts)
            if now and not left:
                life.cut(place, None)
            elif left and not now:
                life.mend(place)

    def heal(self) -> None:
        """Everybody is back, and has nothing older any more."""
        self.replicas.cut_lease()
        self.replicas.stopped = set()
        for life in self.replicas.lives:
            for place in [*life.oracle.away]:
                life.mend(place)
        for place in range(self.case.inputs):
            if self.held[place]:
                self.replicas.commit(place, self.held[place])
            self.replicas.heartbeat(place, _FAR)
        for _ in range(3_000):
            self.replicas.look()
            if all(life.decision.ahead is None for life in self.replicas.lives):
                break


_CASES, _GROUP = 16, 8
_ALL = seeds(_CASES)
_GROUPS = [_ALL[start : start + _GROUP] for start in range(0, len(_ALL), _GROUP)]


@pytest.mark.parametrize("group", _GROUPS, ids=lambda group: f"{group[0]}-{group[-1]}")
def test_any_replicas_answer_in_turn_and_come_to_the_same(group: range) -> None:
    waited = 0
    for seed in group:
        case = _Case.of(seed)
        run = _Run(case)
        with reported(seed, case), often():
            for _ in range(case.steps):
                run.step()
            run.heal()
            for life in run.replicas.lives:
                assert life.decision.phase is Phase.STABLE
                life.end()
                assert life.stable == life.oracle.union.rows()
            assert len({tuple(life.stable) for life in run.replicas.lives}) == 1
        waited += run.replicas.waited_for_other > 0
    if group == range(_GROUP):
        assert waited > _GROUP / 2, "else nobody has had to wait"
