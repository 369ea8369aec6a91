"""Tentative tuples beside stable ones: random histories behind a union, with crashes in between."""

from __future__ import annotations

import random
import tempfile
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from unittest import mock

import pytest

from tests.support.crashes import kept_short
from tests.support.engine import CrashCase, Judge
from tests.support.harm import segment_path
from tests.support.leaps import JumpingWall, LeapingClock
from tests.support.policies import policy_for
from tests.support.seeds import reported, seeds
from tests.support.tentative import (
    KINDS,
    BehindUnion,
    Step,
    StormyHistory,
    TentativeJudge,
    Twins,
    random_history,
)
from trailmark.checkpoint.policy import FullSnapshot
from trailmark.engine import bucket
from trailmark.engine.forking import Forking
from trailmark.errors import DamagedSegment
from trailmark.inspection.verify import verify_operator
from trailmark.log.frame import FRAME_HEADER
from trailmark.records import FrameKind, Stream
from trailmark.testing.disk import SimulatedDisk
from trailmark.testing.processes import AtOnce

_CASES = {"aggregate": 40, "barrier": 12, "join": 10, "groups": 10, "keyed": 16}
_CASES |= {"sessions": 10, "whole": 16}
_TWINS = {"aggregate": 12, "barrier": 5, "join": 4, "groups": 4, "keyed": 6}
_TWINS |= {"sessions": 4, "whole": 6}
_DAMAGED = 4
_MANY = 6
_PARTS = 2


def _stormy(seed: int, case: CrashCase, rng: random.Random) -> tuple[int, int]:
    """Runs a history through its crashes; returns how many there were, and how many tentative
    results were compared."""
    with ExitStack() as stack:
        stack.enter_context(reported(seed, case))
        if rng.random() < 0.5:
            stack.enter_context(kept_short())
        root = None
        if rng.random() < 0.25:
            root = Path(stack.enter_context(tempfile.TemporaryDirectory()), "cache")
        steps = random_history(rng, case)
        policy, buckets = policy_for(rng, case), rng.choice((1, 1, 2, 3))
        query = BehindUnion(case, SimulatedDisk(), policy, buckets, cache_root=root, steps=steps)
        if rng.random() < 0.25:
            clocks = random.Random(rng.random())
            query.clock, query.wall = LeapingClock(clocks), JumpingWall(clocks)
        query.retain_batches, query.beside = rng.choice((None, 1, 2, 4)), AtOnce()
        stack.callback(query.stop)
        judge = TentativeJudge(case, steps, buckets)
        storm = StormyHistory(rng, crash_chance=rng.choice((0.1, 0.5, 0.8)))
        storm.run(query, Judge(case, buckets), judge)
        return storm.crashes, judge.results


@pytest.mark.parametrize("part", range(_PARTS))
@pytest.mark.parametrize("kind", KINDS)
def test_tentative_results_are_those_of_a_copy_and_stable_ones_do_not_notice_them(
    kind: str, part: int
) -> None:
    crashes = results = 0
    for seed in seeds(_CASES[kind])[part::_PARTS]:
        rng = random.Random(seed)
        crashed, compared = _stormy(seed, KINDS[kind](rng), rng)
        crashes, results = crashes + crashed, results + compared
    assert crashes > 0
    assert results > 0


def _twins(case: CrashCase, rng: random.Random) -> Twins:
    """Under a policy that decides the same for both: no copy is written behind the batches."""
    policy, buckets = policy_for(rng, case), rng.choice((1, 1, 2))
    while isinstance(policy, FullSnapshot) and policy.asynchronous:
        policy = policy_for(rng, case)
    retained = rng.choice((None, 1, 2))

    def make(steps: Sequence[Step]) -> BehindUnion:
        disk = SimulatedDisk()
        return BehindUnion(
            case, disk, policy, buckets, retain_batches=retained, beside=AtOnce(), steps=steps
        )

    return Twins.of(case, random_history(rng, case), make)


@pytest.mark.parametrize("kind", KINDS)
def test_all_that_is_stable_is_byte_for_byte_what_it_is_without_tentative_tuples(
    kind: str,
) -> None:
    """Results, footprints, accounts, states; and no more is kept once nothing stands."""
    for seed in seeds(_TWINS[kind]):
        rng = random.Random(seed)
        case = KINDS[kind](rng)
        with reported(seed, case), kept_short():
            twins = _twins(case, rng)
            judge = TentativeJudge(case, twins.query.steps, twins.query.buckets)
            for batch in range(len(case.batches)):
                judge.check(twins.query, batch, twins.step(batch))
                twins.check_states()
                if rng.random() < 0.2:
                    twins.stop()
            twins.stop()


def _of_tentative(query: BehindUnion, number: int, batch: int) -> tuple[str, int, int] | None:
    """Where the tentative results of a batch lie: in which file, from where, and how many bytes;
    None if it has none."""
    frame = query.logs().output(number).read(batch).frames.get(FrameKind.TENTATIVE)
    if frame is None:
        return None
    path = segment_path(Stream.OUTPUT, batch, number)
    return path, frame.offset + FRAME_HEADER.size, len(frame.payload)


def _check_damage(query: BehindUnion, number: int, batch: int, rng: random.Random) -> bool:
    """Flips a bit in the tentative results of a batch, if it has some: everybody notices."""
    place = _of_tentative(query, number, batch)
    if place is None:
        return False
    path, begin, length = place
    query.disk.flip(path, begin + rng.randrange(length), rng.randrange(8))
    (finding,) = verify_operator(query.disk.storage()).findings
    assert (finding.path, finding.trouble, finding.batch) == (path, "damaged", batch)
    query.stop()
    with pytest.raises(DamagedSegment) as refused:
        query.run_step(batch)
    assert refused.value.where.startswith(path)
    return True


@pytest.mark.parametrize("kind", KINDS)
def test_damage_to_tentative_results_is_noticed_and_the_state_recovered_around_it(
    kind: str,
) -> None:
    damaged = 0
    for seed in seeds(_DAMAGED):
        rng = random.Random(seed)
        case = KINDS[kind](rng)
        with reported(seed, case):
            steps, buckets = random_history(rng, case), rng.choice((1, 2))
            disk, policy = SimulatedDisk(), policy_for(rng, case)
            query = BehindUnion(case, disk, policy, buckets, beside=AtOnce(), steps=steps)
            stable, judge = Judge(case, buckets), TentativeJudge(case, steps, buckets)
            is_damaged = False
            for batch in range(len(steps)):
                reports = query.run_step(batch)
                stable.check(query, batch, reports)
                stable.check_state(query, f"after batch {batch}")
                judge.check(query, batch, reports)
                if not is_damaged and rng.random() < 0.5:
                    is_damaged = _check_damage(query, rng.randrange(buckets), batch, rng)
                    query.stop()
            damaged += is_damaged
            query.stop()
    assert damaged > 0


@pytest.mark.parametrize("kind", KINDS)
def test_of_too_many_tentative_tuples_the_last_ones_count_and_it_is_said_once(
    kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    """What is stable goes by all tuples, as ever."""
    left_out = 0
    for seed in seeds(_MANY):
        rng = random.Random(seed)
        case, most_again = KINDS[kind](rng), rng.choice((0, 1, 10, 1_000))
        most_batches = rng.choice((1, 2, 1_000))
        fewer = partial(Forking, most_again=most_again, most_batches=most_batches)
        short = mock.patch.object(bucket, "Forking", fewer)
        with reported(seed, case), short:
            twins = _twins(case, rng)
            steps, buckets = twins.query.steps, twins.query.buckets
            judge = TentativeJudge(case, steps, buckets, most_again, most_batches)
            caplog.clear()
            for batch in range(len(case.batches)):
                judge.check(twins.query, batch, twins.step(batch))
            twins.check_states()
            twins.stop()
            warnings = Counter(
                message.partition(":")[0]
                for message in caplog.messages
                if "too many to be taken into account" in message
            )
            assert warnings == {f"bucket {number}": 1 for number in judge.short_buckets}
            left_out += judge.left_out
    assert left_out > 0
