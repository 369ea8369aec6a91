"""Trimmed logs: never what a recovery needs, though one output segment be damaged."""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import nullcontext, suppress

import pytest

from tests.support.cases import Case
from tests.support.engine import CrashCase
from tests.support.followed import Followed
from tests.support.grouping import random_grouped
from tests.support.harm import PLACES, bring_back, flip_anywhere, flip_in
from tests.support.joining import random_join
from tests.support.orders import count_case, random_orders, random_timed_orders, time_case
from tests.support.pairing import random_pairing
from tests.support.policies import policy_for
from tests.support.seeds import reported, seeds
from tests.support.strategies import random_case
from trailmark.checkpoint.policy import Continuous, Delta, FullSnapshot, NoCheckpoint, Policy
from trailmark.errors import MissingInput
from trailmark.inspection.logs import OperatorFiles
from trailmark.inspection.plan import plan_bucket
from trailmark.inspection.verify import verify_operator
from trailmark.records import Stream
from trailmark.recovery import RecoveryPlan
from trailmark.testing.disk import SimulatedDisk

Make = Callable[[random.Random], CrashCase]


def _extent(run: Followed) -> range:
    """The output segments that a recovery reads, and those of the batches processed anew."""
    target = run.next_batch - 1
    recount = run.recounts[0]
    base = recount.base(target)
    oldest = recount.oldest(base)
    first = max(0, base if oldest is None else oldest)
    # Under some policies a recovery does not read that far back, and what it does not need is gone.
    return range(max(first, run.query.logs().output(0).oldest()), target + 1)


def _trim(run: Followed) -> int:
    """Trims all that may go; returns the oldest batch of input that is left."""
    for bucket in run.query.open():
        bucket.trim(acknowledged=run.next_batch)
    return run.query.logs().input(0).oldest()


def _plan(run: Followed) -> RecoveryPlan:
    return plan_bucket(OperatorFiles(run.disk.storage()), 0)


def _recover_with_one_damaged(run: Followed, rng: random.Random) -> Followed:
    """Flips a bit of one segment of the extent in a copy, and goes on there for a batch."""
    twin = run.copy()
    flip_anywhere(twin.disk, Stream.OUTPUT, rng.choice(_extent(run)), rng)
    twin.step()
    return twin


def _check(run: Followed, rng: random.Random) -> None:
    """After every batch, with everything trimmed that may be."""
    while run.next_batch < len(run.case.batches) - 1:
        run.step()
        _trim(run)
        twin = _recover_with_one_damaged(run, rng)
        if twin.next_batch < len(run.case.batches):
            _trim(twin)
            _damage_one_more(twin, rng)


def _damage_one_more(run: Followed, rng: random.Random) -> None:
    """What is known to be damaged is behind, and one more segment may be. Of two snapshots that are
    written behind, nobody may have read the older."""
    footer, _ = run.query.logs().output(0).read_footer(run.next_batch - 1)
    is_known = bool(footer.attributes["recovery"]["skipped"])
    policy = run.query.policy
    is_behind = isinstance(policy, FullSnapshot) and policy.asynchronous
    with suppress(MissingInput) if is_behind and not is_known else nullcontext():
        _recover_with_one_damaged(run, rng)


def _with_some_back(run: Followed, earlier: SimulatedDisk, rng: random.Random) -> Followed:
    """A copy in which a power failure has brought back some of the files that were trimmed."""
    twin = run.copy()
    marked = {path.rpartition("/")[0] for path in twin.disk.files() if path.endswith(".trim")}
    gone = sorted(set(earlier.files()) - set(twin.disk.files()))
    may_come = [path for path in gone if path.rpartition("/")[0] in marked]
    bring_back(twin.disk, earlier, [path for path in may_come if rng.random() < 0.5])
    return twin


@pytest.mark.parametrize("part", range(4))
def test_files_that_come_back_after_a_trim_change_no_recovery(part: int) -> None:
    came_back = 0
    for seed in seeds(40)[part::4]:
        rng = random.Random(seed)
        case = random_case(rng)
        with reported(seed, case):
            came_back += _bring_some_back(case, rng)
    assert came_back


@pytest.mark.usefixtures("pairing_kind")
@pytest.mark.parametrize("make", [random_pairing, random_join, random_grouped])
def test_files_of_two_inputs_that_come_back_after_a_trim_change_no_recovery(make: Make) -> None:
    came_back = 0
    for seed in seeds(20):
        rng = random.Random(seed)
        case = make(rng)
        with reported(seed, case):
            came_back += _bring_some_back(case, rng)
    assert came_back


def _bring_some_back(case: CrashCase, rng: random.Random) -> bool:
    """Whether any came back after the trim; they change nothing."""
    run = Followed(case, policy_for(rng, case))
    run.run(max(1, len(case.batches) - 2))
    earlier = run.disk.copy()
    _trim(run)
    twin = _with_some_back(run, earlier, rng)
    came_back = len(twin.disk.files()) > len(run.disk.files())
    assert _plan(twin) == _plan(run)
    twin.run()
    _trim(twin)
    assert verify_operator(twin.disk.storage()).is_whole
    return came_back


@pytest.mark.parametrize("part", range(4))
def test_random_queries_survive_one_damaged_segment_however_much_was_trimmed(part: int) -> None:
    for seed in seeds(60)[part::4]:
        rng = random.Random(seed)
        case = random_case(rng)
        with reported(seed, case):
            _check(Followed(case, policy_for(rng, case)), rng)


@pytest.mark.parametrize("make", [random_pairing, random_join, random_grouped])
def test_two_inputs_survive_one_damaged_segment_however_much_was_trimmed(make: Make) -> None:
    for seed in seeds(20):
        rng = random.Random(seed)
        case = make(rng)
        with reported(seed, case):
            _check(Followed(case, policy_for(rng, case)), rng)


_POLICIES: list[Policy] = [
    Continuous(),
    Continuous(u=60),
    Continuous(q=50),
    Continuous(q=40, u=90, interval="30 us", period="300 us"),
    FullSnapshot(3),
    FullSnapshot(3, asynchronous=True),
    Delta(2, full_every=3),
]


@pytest.mark.parametrize("policy", _POLICIES, ids=str)
@pytest.mark.parametrize("kind", ["count", "time"])
def test_long_runs_survive_one_damaged_segment_however_much_was_trimmed(
    policy: Policy, kind: str
) -> None:
    rng = random.Random(1)
    case: Case
    if kind == "count":
        case = count_case(random_orders(rng, batches=22, rows=25, items=12), size=5, slide=3)
    else:
        batches = random_timed_orders(rng, batches=22, rows=20, items=4)
        case = time_case(batches, slide=5_000_000)
    run = Followed(case, policy)
    _check(run, rng)
    assert run.query.logs().input(0).oldest() > 0, "something was trimmed"


def test_of_two_damaged_segments_neither_of_which_was_read_both_are_named() -> None:
    """Two snapshots, of which the older is there for when the newer is damaged; verification finds
    it sooner than a recovery that needs it."""
    case = count_case(random_orders(random.Random(1), batches=12, rows=25, items=12), size=5)
    run = Followed(case, FullSnapshot(3, asynchronous=True))
    run.run(8)
    _trim(run)
    run.query.stop()
    older, newer = run.query.logs().snapshots(0).batches()
    flip_in(run.disk, Stream.OUTPUT, older, PLACES["footer"])
    run.step()
    assert not verify_operator(run.disk.storage()).is_whole
    _trim(run)
    run.query.stop()
    flip_in(run.disk, Stream.OUTPUT, newer, PLACES["footer"])
    with pytest.raises(MissingInput, match=f"batch {newer} could .* batch {older} could"):
        run.step()


def test_policies_that_change_keep_what_the_earlier_one_needs() -> None:
    rng = random.Random(2)
    case = count_case(random_orders(rng, batches=40, rows=20, items=9), size=5)
    run = Followed(case, Continuous(u=30))
    while run.next_batch < 38:
        run.query.policy = rng.choice((Continuous(u=30), Continuous(), NoCheckpoint()))
        run.query.stop()
        run.step()
        _trim(run)
        _recover_with_one_damaged(run, rng)


def test_a_damaged_segment_after_which_nothing_was_open_is_still_gone_around() -> None:
    """Only its footer said so: what was open before it is needed if the next one is damaged."""
    batches = [[(1, 1)], [(1, 1)], [(2, 1)], [(2, 1)]]
    run = Followed(count_case(batches, size=2), NoCheckpoint())
    run.run(2)
    for damaged in (1, 2):
        run.query.stop()
        flip_in(run.disk, Stream.OUTPUT, damaged)
        run.step()
        _trim(run)


def test_trimming_happens_by_itself_as_batches_go_by() -> None:
    batches = random_orders(random.Random(3), batches=50, rows=20, items=5)
    run = Followed(count_case(batches, size=4), Continuous(u=40))
    kept = []
    for _ in run.steps():
        kept.append(len(run.query.logs().input(0).batches()))
    assert max(kept) < 40
    assert kept[-1] < 30


def test_output_that_nobody_has_acknowledged_is_kept() -> None:
    batches = random_orders(random.Random(4), batches=20, rows=20, items=5)
    run = Followed(count_case(batches, size=4), Continuous(u=0))
    run.run()
    (bucket,) = run.query.open()
    bucket.trim()
    assert run.query.logs().output(0).oldest() == 0
    bucket.trim(acknowledged=7)
    assert run.query.logs().output(0).oldest() == 7
    bucket.trim(acknowledged=1_000)
    assert run.query.logs().output(0).oldest() > 7


def test_without_footprints_no_input_is_given_up_while_a_window_is_open() -> None:
    batches = [[(1, batch)] for batch in range(40)]
    run = Followed(count_case(batches, size=1_000), NoCheckpoint())
    run.run()
    assert _trim(run) == 0


def test_with_nothing_open_only_the_last_two_batches_are_kept() -> None:
    batches = [[(1, batch), (1, batch)] for batch in range(10)]
    run = Followed(count_case(batches, size=2), Continuous())
    for _ in run.steps():
        assert _trim(run) == max(0, run.next_batch - 2)
