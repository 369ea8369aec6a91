"""Unions that answer without streams that are missing, in simulated time: random failures, restarts
and choices against the same in plain Python, and what each choice is for."""

from __future__ import annotations

import errno
import random
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import get_args
from unittest import mock

import pytest

from tests.support.seeds import reported, seeds
from tests.support.streams import often
from tests.support.union_answers import LOOK, Life
from trailmark.streams.promises import END_OF_TIME, has_ended
from trailmark.streams.union import ahead as ahead_module
from trailmark.streams.union.ahead import Phase
from trailmark.streams.union.answering import Answering, OnCorrection, OnFailure

#: Beyond all times of a case.
_FAR = 10**12
_ON_FAILURE, _ON_CORRECTION = get_args(OnFailure), get_args(OnCorrection)


@dataclass
class _Writer:
    """One that writes to the stream at a place, and is silent now and then.

    With ``keeps``, what it would have written meanwhile comes when it is back. The boundary of a
    stream is that of the writer that is furthest behind.
    """

    name: str
    place: int
    #: How much older than the newest row one may be, and what is promised of that.
    disorder: int
    delay: int | None
    rate: float
    most: int
    beats: float
    keeps: bool
    #: Looks at which it is not there: from one to before another.
    silences: list[tuple[int, float]]
    is_gone: bool = False
    held: list[int] = field(default_factory=list)

    @classmethod
    def of(cls, rng: random.Random, name: str, place: int, promises: bool, steps: int) -> _Writer:
        disorder = rng.choice([0, 10_000, 30_000, 200_000])
        silences: list[tuple[int, float]] = []
        for _ in range(rng.choice([0, 0, 1, 1, 2, 3])):
            begin = rng.choice([0, rng.randrange(steps), rng.randrange(steps)])
            length = rng.choice([rng.randint(1, 4), rng.randint(3, 30), rng.randint(3, 30)])
            silences.append((begin, begin + length if rng.random() < 0.9 else float("inf")))
        return cls(
            name,
            place,
            disorder,
            rng.choice([disorder, disorder, disorder // 2, 60_000]) if promises else None,
            rng.choice([0.1, 0.3, 0.8]),
            rng.choice([1, 3, 8]),
            rng.choice([0.0, 0.5, 1.0]),
            rng.random() < 0.7,
            silences,
        )

    def is_silent(self, step: int) -> bool:
        return self.is_gone or any(begin <= step < end for begin, end in self.silences)


@dataclass
class _Case:
    """What a seed asks for."""

    seed: int
    writers: list[list[_Writer]]
    interval: int
    delay: int
    answering: Answering
    most_rows: int | None
    decisions_per_look: int | None
    most_edges: int
    steps: int
    trims: bool
    restarts: float
    ends: float
    heals: bool
    #: Looks at which the stream at a place does not answer, from one to before another, and how.
    cuts: list[tuple[int, int, int, int | None]]
    idle_after: int | None

    @classmethod
    def of(cls, seed: int) -> _Case:
        rng = random.Random(seed)
        steps = rng.randint(20, 90)
        writers = []
        for place in range(rng.randint(2, 4)):
            kind = rng.choice(["promise", "promise", "promise", "nothing", "mixed"])
            count = 2 if kind == "mixed" else rng.choice([1, 1, 2])
            told = [kind == "promise" or (kind == "mixed" and n == 0) for n in range(count)]
            writers.append(
                [_Writer.of(rng, f"w{n}", place, each, steps) for n, each in enumerate(told)]
            )
        return cls(
            seed,
            writers,
            rng.choice([7_000, 20_000, 100_000, 300_000]),
            rng.choice([0, 30_000, 100_000]),
            _answering(rng),
            rng.choice([None, None, 1, 5, 20]),
            rng.choice([None, None, 1, 2]),
            rng.choice([64, 64, 1, 2, 5]),
            steps,
            rng.random() < 0.2,
            rng.choice([0, 0.02, 0.1]),
            rng.choice([0, 0, 0.02]),
            rng.random() < 0.7,
            _cuts(rng, len(writers), steps),
            rng.choice([None, 1, 2 * LOOK, 5 * LOOK, 20 * LOOK]),
        )


def _cuts(rng: random.Random, inputs: int, steps: int) -> list[tuple[int, int, int, int | None]]:
    found = []
    for place in range(inputs if rng.random() < 0.5 else 0):
        begin = rng.choice([0, rng.randrange(steps)])
        while rng.random() < 0.5 and begin < steps:
            end = begin + rng.choice([1, rng.randint(1, 4), rng.randint(3, 30)])
            found.append((place, begin, end, rng.choice([None, errno.EIO, errno.ETIMEDOUT])))
            begin = end + rng.choice([0, 1, rng.randint(1, 20)])
    return found


def _answering(rng: random.Random) -> Answering:
    within = rng.choice([1, 100_000, 200_000, 333_333, 500_000, 1_000_000])
    return Answering(within, rng.choice(_ON_FAILURE), rng.choice(_ON_CORRECTION))


class _Run:
    """A union through a random life."""

    def __init__(self, case: _Case) -> None:
        self.case = case
        self.rng = random.Random(f"run {case.seed}")
        self.life = Life(
            [{each.name: each.delay for each in writers} for writers in case.writers],
            case.interval,
            case.answering,
            most_rows=case.most_rows,
            delay=case.delay,
            decisions_per_look=case.decisions_per_look,
            is_thinned=case.most_edges < 64,
            trims=case.trims,
            idle_after=case.idle_after,
        )
        self.writers = [each for writers in case.writers for each in writers]

    def step(self, step: int) -> None:
        for place in range(len(self.case.writers)):
            self._cut(place, step)
        for each in self.writers:
            self._write(each, step)
        if self.rng.random() < 0.3:
            self.life.clock.now_us -= self.rng.choice([0, LOOK, 100 * LOOK])
        if self.rng.random() < self.case.restarts:
            self._restart()
        if self.rng.random() < 0.1:
            self._read_again()
        self.life.look()

    def _cut(self, place: int, step: int) -> None:
        how = [code for p, begin, end, code in self.case.cuts if p == place and begin <= step < end]
        if how:
            self.life.cut(place, how[0])
        elif place in self.life.oracle.away:
            self.life.mend(place)

    def _read_again(self) -> None:
        if not self.life.oracle.away:  # or it would fail, and be repeated
            self.life.read_again()

    def _write(self, each: _Writer, step: int) -> None:
        rng, now = self.rng, self.life.now
        is_silent = each.is_silent(step)
        if rng.random() < each.rate and (each.keeps or not is_silent):
            each.held += [now - rng.randint(0, each.disorder) for _ in range(each.most)]
        if not is_silent and each.delay is not None and rng.random() < self.case.ends:
            if each.held:
                self._commit(each)
            each.is_gone = True
            self.life.heartbeat(each.place, END_OF_TIME, each.name)
        elif is_silent:
            if not each.is_gone and each.delay is not None and rng.random() < 0.02:
                each.is_gone = rng.random() < 0.3
                self.life.let_go(each.place, each.name)
        elif each.held:
            self._commit(each)
        elif each.delay is not None and rng.random() < each.beats:
            self.life.heartbeat(each.place, now, each.name)

    def _commit(self, each: _Writer) -> None:
        times, each.held = each.held, []
        is_promised = self.life.sources[each.place].plain.promises.is_told
        if each.delay is None and is_promised and self.rng.random() < 0.05:
            times.append(self.life.now + self.rng.choice([4 * LOOK, 1_000 * LOOK]))
        middle = self.rng.randint(0, len(times))
        for part in (times[:middle], times[middle:]):
            if part:
                self.life.commit(each.place, part, each.name)

    def _restart(self) -> None:
        life, answering = self.life, self.life.oracle.answering
        if self.rng.random() < 0.3 and not life.oracle.away:
            life.end()
        if self.rng.random() < 0.2:
            answering = self.rng.choice([None, _answering(self.rng), _answering(self.rng)])
        life.restart(answering)
        self._read_again()

    def heal(self) -> None:
        """Everybody is back, and has nothing older any more."""
        for place in [*self.life.oracle.away]:
            self.life.mend(place)
        for each in self.writers:
            each.silences, each.is_gone = [], False
            if each.held:
                self.life.commit(each.place, each.held, each.name)
            if each.delay is not None:
                self.life.heartbeat(each.place, _FAR, each.name)
            elif not self.life.sources[each.place].plain.promises.is_told:
                self.life.commit(each.place, [_FAR], each.name)
        self.life.end()


@contextmanager
def _few_edges(count: int) -> Iterator[None]:
    with mock.patch.object(ahead_module, "_MOST_EDGES", count):
        yield


@pytest.mark.parametrize("seed", seeds(40))
def test_any_union_answers_in_time_and_is_right_in_the_end(seed: int) -> None:
    case = _Case.of(seed)
    run = _Run(case)
    with reported(seed, case), often(), _few_edges(case.most_edges):
        for step in range(case.steps):
            run.step(step)
        if case.heals:
            run.heal()
            assert run.life.decision.phase is Phase.STABLE
        life = run.life
        assert life.stable == life.oracle.union.rows()
        if case.heals and not has_ended(life.oracle.complete):  # nothing is decided then
            late = sum(each.plain.late_rows for each in life.sources)
            assert life.decision.late_rows == late


# What each choice is for

_SLICE, _WITHIN = 2 * LOOK, 20 * LOOK
#: Looks for which something waits. A row that is seen before its slice is passed waits meanwhile,
#: so that a stream may be missing for a slice less.
_WAIT, _SHORT = 18, 16
_CHOICES = [(one, other) for one in _ON_FAILURE for other in _ON_CORRECTION]


def _life(
    count: int = 2,
    on_failure: OnFailure = "process",
    on_correction: OnCorrection = "process",
    most_rows: int | None = None,
) -> Life:
    """Streams that have spoken. With ``most_rows``, there is one decision at every look."""
    life = Life(
        [{"w0": 0, "w1": None} for _ in range(count)],
        _SLICE,
        Answering(_WITHIN, on_failure, on_correction),
        most_rows=most_rows,
        decisions_per_look=None if most_rows is None else 1,
    )
    _go_on(life, 6, *range(count))
    return life


def _go_on(life: Life, looks: int, *places: int) -> None:
    """Some streams have a row for every look, and the others nothing."""
    for _ in range(looks):
        for place in places:
            life.commit(place, [life.now])
        life.look()


def _promised(life: Life, place: int) -> int | None:
    """Up to which time a stream says that it is complete."""
    known = life.sources[place].writer("w0").boundaries()
    return None if known is None else known.stream


def _come_back(life: Life, place: int, looks: int) -> None:
    """A stream has the rows for the looks that it has missed."""
    life.commit(place, [life.now - LOOK * n for n in range(looks, 0, -1)])


@pytest.mark.parametrize(("on_failure", "on_correction"), _CHOICES)
def test_a_failure_shorter_than_the_wait_changes_nothing(
    on_failure: OnFailure, on_correction: OnCorrection
) -> None:
    life = _life(3, on_failure, on_correction)
    for place in (0, 1, 2, 1):
        _go_on(life, _SHORT, *{0, 1, 2} - {place})
        _come_back(life, place, _SHORT)
        _go_on(life, 3, 0, 1, 2)
    assert life.phases == [Phase.STABLE]
    assert not life.tentative
    assert life.decision.released_us == (life.now - LOOK) // _SLICE * _SLICE


@pytest.mark.parametrize("most_rows", [1, 4])
def test_a_failure_is_answered_corrected_and_over(most_rows: int) -> None:
    life = _life(2, "process", "suspend", most_rows)
    _go_on(life, _SHORT, 0)
    assert life.phases == [Phase.STABLE]
    _go_on(life, 4, 0)
    assert life.phases == [Phase.STABLE, Phase.UP_FAILURE]
    _go_on(life, 10, 0)
    _come_back(life, 1, _SHORT + 14)
    _go_on(life, 1, 0, 1)
    assert life.phases == [Phase.STABLE, Phase.UP_FAILURE, Phase.STABILIZATION]
    _go_on(life, 30, 0, 1)
    assert life.phases[2:] == [Phase.STABILIZATION, Phase.STABLE]


def test_a_failure_during_a_correction_is_answered_while_that_goes_on() -> None:
    life = _life(most_rows=4)
    _go_on(life, _WAIT + 40, 0)
    _come_back(life, 1, _WAIT + 40)
    _go_on(life, 3, 0, 1)
    stood = life.decision.ahead
    assert stood is not None
    assert stood.phase is Phase.STABILIZATION
    _go_on(life, _WAIT + 5, 1)
    ahead = life.decision.ahead
    assert ahead is not None
    assert (ahead.phase, ahead.missing) == (Phase.UP_FAILURE, ("0",))
    assert ahead.since > stood.since
    _come_back(life, 0, _WAIT + 5)
    _go_on(life, 40, 0, 1)
    assert life.phases[-2:] == [Phase.STABILIZATION, Phase.STABLE]


def test_failures_that_overlap_are_one_until_the_last_is_over() -> None:
    life = _life(3)
    missing: list[tuple[str, ...]] = []
    for looks, places in ((_WAIT + 5, (0, 2)), (_WAIT + 5, (0,)), (4, (0, 1)), (3, (0, 1, 2))):
        for place in places:
            if missing and str(place) in missing[-1]:
                _come_back(life, place, _WAIT)
        _go_on(life, looks, *places)
        missing.append(() if life.decision.ahead is None else life.decision.ahead.missing)
    assert missing == [("1",), ("1", "2"), ("2",), ()]
    assert life.phases == [Phase.STABLE, Phase.UP_FAILURE, Phase.STABLE]


@pytest.mark.parametrize(("on_failure", "on_correction"), _CHOICES)
def test_new_rows_are_given_out_at_once_or_in_time_or_when_all_is_over(
    on_failure: OnFailure, on_correction: OnCorrection
) -> None:
    life = _life(2, on_failure, on_correction, most_rows=6)
    _go_on(life, 60, 0)
    _come_back(life, 1, 60)
    _go_on(life, 80, 0, 1)
    assert life.phases[1:4] == [Phase.UP_FAILURE, Phase.STABILIZATION, Phase.STABLE]
    waited: dict[Phase, list[int]] = {Phase.UP_FAILURE: [], Phase.STABILIZATION: []}
    for each in life.tentative:
        waited[each.phase].append((each.moment - each.time) // LOOK)
    # A batch takes a look here, and there is room for three of them, and a little to spare.
    delayed = range(_WAIT - 1, _WAIT + 2)
    expected = {"process": range(2, 5), "delay": delayed, "suspend": range(0)}
    # Those that are given out first have waited in any case.
    assert set(waited[Phase.UP_FAILURE][-10:]) <= set(expected[on_failure])
    assert set(waited[Phase.STABILIZATION][-10:]) <= set(expected[on_correction])
    assert bool(waited[Phase.STABILIZATION]) == (on_correction != "suspend")


@pytest.mark.parametrize("on_failure", _ON_FAILURE)
def test_a_row_far_ahead_of_its_time_makes_nothing_earlier(on_failure: OnFailure) -> None:
    life = _life(on_failure=on_failure)
    life.commit(0, [life.now + 1_000 * LOOK], "w1")  # it promises nothing
    _go_on(life, 2 * _WAIT, 0, 1)
    _go_on(life, _SHORT, 0)
    assert life.phases == [Phase.STABLE]
    _go_on(life, 10, 0)
    assert life.phases == [Phase.STABLE, Phase.UP_FAILURE]
    assert life.decision.until_us is not None
    assert life.decision.until_us < life.now
    assert all(each.moment - each.time >= LOOK for each in life.tentative)


def test_a_stream_that_turns_out_to_be_further_back_is_missing_like_any_other() -> None:
    """The first promise counts, whatever the rows before it seemed to say."""
    delays: list[dict[str, int | None]] = [{"w0": 0}, {"w0": 10 * LOOK, "w1": None}]
    life = Life(delays, _SLICE, Answering(_WITHIN))
    for _ in range(6):
        life.commit(1, [life.now], "w1")
        _go_on(life, 1, 0)
    life.heartbeat(1, life.now)
    _go_on(life, _SHORT + 4, 0)
    assert life.phases == [Phase.STABLE, Phase.UP_FAILURE]


def test_a_long_failure_is_remembered_in_few_edges() -> None:
    life = _life()
    life.oracle.is_thinned = True
    with _few_edges(8):
        _go_on(life, _WAIT + 60, 0)
        ahead = life.decision.ahead
        assert ahead is not None
        assert len(ahead.edges) <= 8
        assert ahead.edges[-1].time_us == ahead.until_us
        for looks in range(_WAIT + 60, 0, -6):  # it comes back bit by bit
            life.commit(1, [life.now - LOOK * looks])
            _go_on(life, 1, 0)
        _go_on(life, 20, 0, 1)
    assert life.phases[-1] is Phase.STABLE


def test_who_goes_on_after_a_restart_waits_again_unless_it_has_begun_to_answer() -> None:
    life = _life()
    _go_on(life, _SHORT, 0)
    life.restart(life.oracle.answering)
    _go_on(life, _WAIT, 0)
    assert life.phases == [Phase.STABLE]
    _go_on(life, 2, 0)
    assert life.phases == [Phase.STABLE, Phase.UP_FAILURE]
    life.restart(life.oracle.answering)
    _go_on(life, 2, 0)
    assert life.tentative[-1].moment >= life.now - LOOK


def test_what_a_stream_had_when_it_ended_is_answered_like_any_other_row() -> None:
    """No stream that goes on has come so far, and the one that is missing may never."""
    life = Life([{"w0": 0}, {"w0": 0}], 20_000, Answering(500_000))
    for place in (0, 1):
        life.heartbeat(place, life.now)
    life.look()
    rows = [life.now, life.now + 5 * LOOK]
    life.commit(0, rows)
    life.heartbeat(0, END_OF_TIME)
    for _ in range(8):
        life.look()
    assert not life.tentative
    for _ in range(12):
        life.look()
    assert [each.time for each in life.tentative] == rows
    life.commit(0, [life.now + 10**9])
    for _ in range(20):
        life.look()
    assert len(life.tentative) == len(rows), "what comes later is late"
    assert life.decision.until_us == rows[1] // 20_000 * 20_000 + 20_000
    life.heartbeat(1, life.now + 10**10)
    life.look()
    assert life.phases == [Phase.STABLE, Phase.UP_FAILURE, Phase.STABLE]
    assert [time for time, _, _ in life.stable] == rows


def test_a_row_far_ahead_in_a_stream_that_has_ended_is_answered_by_the_next_process_too() -> None:
    """It waits in a batch of its own before those that the next process begins with."""
    life = Life([{"w0": 0, "w1": None}, {"w0": 0}], 20_000, Answering(500_000))
    far = life.now + 1_000 * LOOK
    life.heartbeat(0, life.now)
    for times, writer in (([life.now], "w0"), ([far], "w1"), ([life.now], "w0")):
        life.commit(0, times, writer)
    life.heartbeat(0, END_OF_TIME)
    life.heartbeat(1, life.now + LOOK)
    life.look()
    reached = life.decision.inputs["0"]
    assert (reached.early, reached.first, reached.end) == ((1,), 3, 3)
    life.cut(1)
    life.restart(life.oracle.answering)
    for _ in range(12):
        life.look()
    assert [each.time for each in life.tentative] == [far]


def test_a_stream_that_is_behind_and_moves_is_not_ended_though_its_slice_is_long() -> None:
    life = Life([{"w0": 0}, {"w0": 0}], 100 * LOOK, Answering(2 * LOOK, give_up_us=10 * LOOK))
    for _ in range(250):
        life.heartbeat(0, life.now)
        life.heartbeat(1, life.now - 50 * LOOK)
        life.look()
    assert Phase.UP_FAILURE in life.phases
    assert _promised(life, 1) == life.now - 51 * LOOK


def test_whoever_goes_on_with_what_is_there_ends_no_stream() -> None:
    """It does not look again, so it cannot know that a stream does not move."""
    life = Life([{"w0": 0}, {"w0": 0}], 20_000, Answering(500_000, give_up_us=1_000_000))
    begun = life.now
    for place in (0, 1):
        life.heartbeat(place, begun)
    for _ in range(15):
        life.commit(0, [life.now])
        life.look()
    assert life.phases[-1] is Phase.UP_FAILURE
    life.end_with_next_look()
    for _ in range(60):
        life.look()
    assert _promised(life, 1) == begun


def test_every_move_from_phase_to_phase_is_told(caplog: pytest.LogCaptureFixture) -> None:
    life = _life(3, most_rows=4)
    _go_on(life, _WAIT + 20, 0, 2)
    _come_back(life, 1, _WAIT + 20)
    _go_on(life, 60, 0, 1, 2)
    told = [each.message for each in caplog.records if each.levelname == "WARNING"]
    assert len(told) == len(life.phases) - 1 == 3
    assert told[0].startswith("union: UP_FAILURE. Missing: 1 (up to 1970-01-01 00:00:50")
    assert told[1].startswith("union: STABILIZATION. All streams are back")
    assert told[2].startswith("union: STABLE. All streams are complete up to 1970-01-01")
