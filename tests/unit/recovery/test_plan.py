"""The plan says what a recovery will do, and says it right."""

from __future__ import annotations

import random

import pytest

from tests.support.crashes import OTHER_KINDS
from tests.support.engine import CrashCase
from tests.support.followed import Followed
from tests.support.harm import flip_in
from tests.support.oracle import Identity
from tests.support.orders import (
    count_case,
    orders,
    random_orders,
    random_timed_orders,
    time_case,
)
from tests.support.policies import footprints_for
from tests.support.seeds import reported, seeds
from tests.support.strategies import random_case
from trailmark.checkpoint.policy import Continuous, NoCheckpoint
from trailmark.records import FOOTPRINT, Stream
from trailmark.recovery import RecoveryPlan, plan_recovery


def _plan(run: Followed, bucket: int = 0) -> RecoveryPlan:
    """The plan for the state after the last batch that was run."""
    logs = run.query.logs()
    target = run.next_batch - 1
    operator = run.case.operator()
    return plan_recovery(
        operator,
        logs.output(bucket),
        logs.input(bucket),
        logs.snapshots(bucket),
        target,
        0,
    )


def _check_plan(run: Followed, bucket: int) -> None:
    """All numbers of a plan without damage are those of a count over the logs."""
    plan, recount = _plan(run, bucket), run.recounts[bucket]
    standing = recount.standing(plan.target)
    oldest = recount.oldest(standing.base)
    assert plan.base == standing.base
    assert plan.oldest == (standing.base if oldest is None else oldest)
    assert plan.open_windows == len(recount.open_after[standing.base])
    assert plan.segments_read == (0 if oldest is None else standing.base - oldest + 1)
    assert plan.records_read == standing.extent
    assert plan.excess_used == plan.extent_excess == standing.extent_excess
    assert plan.replay_from == standing.needs
    assert plan.replay_tuples == standing.replay
    assert plan.skipped == ()
    _check_footprints(run, plan, recount.ages(standing.base))


def _check_footprints(run: Followed, plan: RecoveryPlan, ages: dict[Identity, int]) -> None:
    found: dict[Identity, int] = {}
    for rows in plan.footprints:
        batches = rows.column(FOOTPRINT).to_pylist()
        assert len(set(batches)) == 1, "one record batch for each segment"
        states = run.case.footprint_states(run.case.operator(), rows)
        assert not found.keys() & states.keys(), "one footprint for each window"
        found.update(dict.fromkeys(states, batches[0]))
    assert found == ages
    assert list(found.values()) == sorted(found.values()), "oldest first"


@pytest.mark.parametrize("part", range(2))
def test_a_plan_says_what_counting_all_rows_gives(part: int) -> None:
    for seed in seeds(80)[part::2]:
        rng = random.Random(seed)
        case = random_case(rng)
        with reported(seed, case):
            _check_plans(case, rng)


@pytest.mark.parametrize("kind", OTHER_KINDS)
def test_a_plan_of_operators_of_other_kinds_says_so_too(kind: str) -> None:
    for seed in seeds(45):
        rng = random.Random(seed)
        case = OTHER_KINDS[kind](rng)
        with reported(seed, case):
            _check_plans(case, rng)


def _check_plans(case: CrashCase, rng: random.Random) -> None:
    run = Followed(case, footprints_for(rng, case), buckets=rng.choice((1, 2)))
    for _ in run.steps():
        for bucket in range(run.query.buckets):
            _check_plan(run, bucket)


@pytest.mark.parametrize("policy", [Continuous(), Continuous(q=60, u=40), NoCheckpoint()], ids=str)
def test_a_plan_counts_neither_late_rows_nor_results_it_does_not_read(
    policy: Continuous | NoCheckpoint,
) -> None:
    rng = random.Random(3)
    batches = random_timed_orders(rng, batches=16, rows=30, items=6)
    run = Followed(time_case(batches, late="keep"), policy)
    late = 0
    for (report,) in run.steps():
        late += report.late_rows
        _check_plan(run, 0)
    assert late > 20


def test_a_plan_is_printed_with_all_that_it_will_do() -> None:
    batches = [[(item, 1) for item in range(3)], [(7, 1)], [(0, 1), (8, 1)]]
    run = Followed(count_case(batches), Continuous())
    run.run()
    assert str(_plan(run)).splitlines() == [
        "recover to the end of batch 2",
        "  read     3 output segments, 5 records",
        "  load     5 footprints (oldest from batch 0)",
        "  replay   3 tuples of batches 1 to 2",
    ]


def test_a_plan_without_footprints_says_that_batches_are_processed_anew() -> None:
    run = Followed(count_case([[(1, 1)], [(2, 1), (3, 1)]]), NoCheckpoint())
    run.run()
    assert str(_plan(run)).splitlines() == [
        "recover to the end of batch 1",
        "  read     0 output segments, 0 records",
        "  load     nothing: no open window is older than batch 0",
        "  replay   3 tuples of batches 0 to 1",
        "  process  batches 0 to 1 anew, emitting nothing",
    ]


def test_a_plan_with_nothing_open_says_that_there_is_nothing_to_do() -> None:
    run = Followed(count_case([[(1, 1), (1, 2)]], size=2), Continuous())
    run.run()
    assert str(_plan(run)).splitlines() == [
        "recover to the end of batch 0",
        "  read     0 output segments, 0 records",
        "  load     nothing: no open window is older than batch 1",
        "  replay   nothing",
    ]


def test_a_plan_around_damage_names_the_batch_and_what_is_wrong_with_it() -> None:
    run = Followed(count_case([[(item, 1)] for item in range(5)]), Continuous())
    run.run()
    flip_in(run.disk, Stream.OUTPUT, 3)
    plan = _plan(run)
    assert (plan.base, plan.oldest, plan.open_windows) == (2, 0, 3)
    ((batch, why),) = [(skipped.batch, skipped.why) for skipped in plan.skipped]
    assert batch == 3
    assert "does not match" in why
    lines = str(plan).splitlines()
    assert lines[-2] == "  process  batches 3 to 4 anew, emitting nothing"
    assert lines[-1] == f"  skipped  batch 3: {why}"


def test_several_damaged_segments_are_all_named_newest_first() -> None:
    run = Followed(count_case([[(item, 1)] for item in range(8)]), Continuous())
    run.run()
    for batch in (2, 5, 7):
        flip_in(run.disk, Stream.OUTPUT, batch)
    plan = _plan(run)
    assert [skipped.batch for skipped in plan.skipped] == [7, 5, 2]
    assert plan.base == 1


def test_a_missing_segment_is_named_as_such() -> None:
    run = Followed(count_case([[(item, 1)] for item in range(5)]), Continuous())
    run.run()
    run.query.logs().storage.delete("out/00000/00000000000000000002.seg")
    plan = _plan(run)
    ((batch, why),) = [(skipped.batch, skipped.why) for skipped in plan.skipped]
    assert (batch, plan.base) == (2, 1)
    assert "not in the log" in why


def test_footprints_of_closed_windows_are_not_loaded() -> None:
    batches = [[(1, 1), (2, 1)], [(1, 1)], [(3, 1)]]
    run = Followed(count_case(batches, size=2), Continuous())
    run.run()
    plan = _plan(run)
    assert plan.open_windows == 2
    items = [item for table in plan.footprints for item in table.column("item").to_pylist()]
    assert items == [2, 3], "item 1 has a footprint too, and a result after it"


def test_a_window_that_opened_again_is_loaded_from_its_new_footprint() -> None:
    batches = [[(1, 1)], [(1, 1), (1, 5)], [(2, 2)]]
    run = Followed(count_case(batches, size=2), Continuous())
    run.run()
    plan = _plan(run)
    found = {
        row["item"]: (row[FOOTPRINT], row["$opened"])
        for table in plan.footprints
        for row in table.to_pylist()
    }
    assert found == {1: (1, 1), 2: (2, 2)}
    assert plan.oldest == 1, "batch 0 holds nothing that is needed"


def test_a_window_checked_again_is_loaded_from_its_newest_footprint() -> None:
    batches = [[(1, 1)], [(2, 1)], [(1, 1)], [(2, 1)]]
    run = Followed(count_case(batches), Continuous(u=1))
    run.run()
    plan = _plan(run)
    _check_plan(run, 0)
    assert plan.segments_read < 4


def test_planning_changes_nothing() -> None:
    rng = random.Random(4)
    run = Followed(count_case(random_orders(rng, batches=6, rows=20, items=9)), Continuous())
    run.run()
    before = {path: run.disk.content(path) for path in run.disk.files()}
    operations = run.disk.operations
    assert _plan(run) == _plan(run)
    assert run.disk.operations == operations
    assert {path: run.disk.content(path) for path in run.disk.files()} == before


def test_what_a_recovery_did_is_reported_and_logged_with_the_batch_after_it() -> None:
    run = Followed(count_case([[(item, 1)] for item in range(5)]), Continuous())
    run.run(4)
    plan = _plan(run)
    run.query.stop()
    (report,) = run.step()
    assert report.recovery is not None
    assert report.recovery.plan == plan
    assert report.recovery.why == "no cache"
    footer, _ = run.query.logs().output(0).read_footer(4)
    logged = footer.attributes["recovery"]
    assert logged == report.recovery.describe()
    assert (logged["target"], logged["footprints"], logged["oldest"]) == (3, 4, 0)
    assert logged["replay_tuples"] == 3
    assert min(logged["plan_us"], logged["load_us"], logged["replay_us"]) > 0
    assert (report.results.num_rows, orders([]).num_rows) == (0, 0), "nothing is emitted again"
