"""`Continuous.within`: rounds of footprints, against a plain statement of when and what."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.support.orders import Order, count_case
from tests.support.work import Costs, Counted, workloads
from trailmark.checkpoint.policy import Continuous
from trailmark.checkpoint.rates import Rates, Work
from trailmark.records import NO_BATCH, FootprintKind

_BATCHES = 50
_SHARE = 0.8
_PAUSE_US = 50_000.0
_CASES = workloads(_BATCHES)
_KINDS = pytest.mark.parametrize("kind", _CASES)


class PlainRounds:
    """When a round is made, and of which footprints, from counts over all rows of both logs.

    How many windows wait is not known better than that: no more than have opened since the last
    round, and no more than are open.
    """

    def __init__(self, run: Counted, objective_us: int) -> None:
        self._run = run
        self._limit = _SHARE * objective_us
        self._waiting = 0
        self._is_behind = False
        #: Why each round was made.
        self.reasons: Counter[str] = Counter()

    def expect(self, batch: int) -> tuple[int, Counter[int]]:
        """How many windows get their first footprint now, and how old those are that get a newer
        one."""
        recount = self._run.recount
        rates, opened = self._run.rates(batch), recount.open_after[batch]
        before = self._run.ages_before(batch).values()
        ages = [age for age in before if age != NO_BATCH]
        bare = len(before) - len(ages)
        self._waiting = min(len(opened), self._waiting + sum(at == batch for at in opened.values()))
        least = rates.predict_us(Work(1, len(opened)))
        limit = self._limit if least <= self._limit else 2.0 * least
        growth = rates.replay_us * Work(batches=1, tuples=recount.tuples(batch, batch)).replay_rows
        pause = max(_PAUSE_US, rates.batch_us)
        carried = rates.predict_us(self._carried(batch, min(before, default=NO_BATCH)))
        reason = self._reason(carried > limit - growth, self._waiting * rates.write_us > pause)
        if not reason:
            return 0, Counter()
        self.reasons[reason] += 1
        self._waiting = 0
        soft = self._oldest_within(batch, rates, least + (limit - least) / 2, bare)
        hard = self._oldest_within(batch, rates, limit - growth, bare)
        room = int(pause / rates.write_us) - bare
        most = max(0, room, sum(age < hard for age in ages))
        old = sorted(age for age in ages if age < soft)
        self._is_behind = most < len(old)
        return bare, Counter(old[:most])

    def _reason(self, takes_too_long: bool, too_many_wait: bool) -> str:
        if takes_too_long:
            return "takes too long"
        if too_many_wait:
            return "too many wait"
        return "behind" if self._is_behind else ""

    def _carried(self, batch: int, oldest: int) -> Work:
        """What a recovery would have to do if nothing were written: as after the batch before, and
        this batch too, as long as some window waits; else load them all."""
        if oldest != NO_BATCH:
            return self._run.work_from(oldest, batch, 0)
        recount = self._run.recount
        before = recount.standing(batch - 1)
        oldest_at_base = recount.oldest(before.base)
        segments = 0 if oldest_at_base is None else before.base - oldest_at_base + 1
        tuples = before.replay + recount.tuples(batch, batch)
        return Work(segments, before.extent, batch + 1 - before.needs, tuples)

    def _oldest_within(self, batch: int, rates: Rates, limit: float, bare: int) -> int:
        """The oldest batch to build on in so much time, with the windows that wait written now."""
        for oldest in range(batch - 1, -1, -1):
            if rates.predict_us(self._run.work_from(oldest, batch, bare)) > limit:
                return oldest + 1
        return 0


def _follow(run: Counted, policy: Continuous) -> PlainRounds:
    """Runs all batches; in each, what is written is what the rule says."""
    run.policy = policy
    if not run.next_batch:
        run.step()
    plain = PlainRounds(run, policy.objective_us)
    while run.next_batch < len(run.case.batches):
        report = run.step()
        batch = report.batch
        bare, checked = plain.expect(batch)
        what = f"batch {batch}"
        assert report.footprints_opened == bare, what
        before = run.ages_before(batch)
        found = Counter(before[window] for window in run.written(batch, FootprintKind.CHECK))
        assert found == checked, what
    return plain


@_KINDS
@pytest.mark.parametrize("objective", ["1 second", "250 ms"])
def test_footprints_are_written_when_a_recovery_would_take_too_long_and_not_before(
    kind: str, objective: str
) -> None:
    policy = Continuous.within(objective)
    plain = _follow(Counted(_CASES[kind], policy), policy)
    assert 0 < plain.reasons["takes too long"] < _BATCHES / 2


def _knows_what_writing_costs(rows: list[list[Order]], size: int, costs: Costs) -> Counted:
    """A query that has written footprints before, under another policy."""
    run = Counted(count_case(rows, size=size), Continuous(u=0), costs)
    for _ in range(8):
        run.step()
    run.restart()
    return run


def _new_windows(batches: int) -> list[list[Order]]:
    """A hundred more in every batch."""
    return [[(100 * batch + item, 1) for item in range(100)] for batch in range(batches)]


def test_a_round_is_made_before_too_many_windows_wait_for_it() -> None:
    """However much time the objective leaves, a batch does not write for longer than it works."""
    run = _knows_what_writing_costs(_new_windows(40), 50, Costs(footprint=100))
    plain = _follow(run, Continuous.within("1 hour"))
    assert set(plain.reasons) == {"too many wait"}
    assert plain.reasons["too many wait"] > 3


def test_windows_that_waited_before_a_restart_wait_after_it() -> None:
    run = _knows_what_writing_costs(_new_windows(24), 50, Costs(footprint=100))
    run.policy = Continuous.within("1 hour")
    while run.next_batch < 24:
        batch = run.step().batch
        rates = run.rates(batch)
        waiting = list(run.recount.ages(batch).values()).count(NO_BATCH)
        assert waiting * rates.write_us <= max(_PAUSE_US, rates.batch_us), f"batch {batch}"
        if batch % 2:
            run.restart()


def test_a_round_that_cannot_write_everything_old_at_once_goes_on_in_the_next_batches() -> None:
    """Windows that stay open for ever are written a few at a time."""
    rows = [[(20 * batch + item, 1) for item in range(20)] for batch in range(40)]
    run = _knows_what_writing_costs(rows, 1_000_000, Costs(footprint=400, load=1))
    plain = _follow(run, Continuous.within("1 second"))
    assert plain.reasons["behind"] > 3


@_KINDS
def test_windows_that_open_and_close_between_two_rounds_have_no_footprint(kind: str) -> None:
    run = Counted(_CASES[kind], Continuous.within("400 ms"))
    reports = [run.step() for _ in range(_BATCHES)]
    rounds = [r.batch for r in reports if r.footprints_opened + r.footprints_checked]
    assert 2 < len(rounds) < _BATCHES / 2
    recount = run.recount
    windows = {(w, at) for open_ in recount.open_after.values() for w, at in open_.items()}
    at_rounds = {(w, at) for batch in rounds for w, at in recount.open_after[batch].items()}
    written = {(f.identity, f.opened) for f in recount.footprints}
    assert written <= at_rounds
    assert len(windows - at_rounds) > 100, "most of the fast ones"
