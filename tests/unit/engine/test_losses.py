"""Who may accept loss, what is said of it, and what is refused."""

from __future__ import annotations

import random
from typing import Any

import pytest

from tests.support.engine import Query
from tests.support.followed import Followed
from tests.support.harm import flip_in
from tests.support.keyed import small_keyed
from tests.support.losses import Watched
from tests.support.orders import count_case, random_orders
from tests.support.pairing import PairingCase, random_pairing
from trailmark.checkpoint.policy import Continuous, FullSnapshot, NoCheckpoint
from trailmark.drawing import draw, lines_of
from trailmark.engine.losses import asked_loss, check_refers_to_nothing
from trailmark.engine.progress import read_progress
from trailmark.errors import MissingInput, SettingError
from trailmark.inspection import read_status
from trailmark.inspection.logs import OperatorFiles
from trailmark.inspection.plan import plan_bucket
from trailmark.operators.keyed import Keyed
from trailmark.records import Foundation, Loss, Stream
from trailmark.recovery import Lost
from trailmark.streams.operator_state import open_state
from trailmark.testing.disk import SimulatedDisk


def _run(batches: int = 8, policy: Any = None, loss: Loss = Loss.BOUNDED) -> Watched:
    """Batches of 20 tuples, 12 windows that stay open, and all written in every third batch."""
    rows = [[(order % 12, batch) for order in range(20)] for batch in range(16)]
    run = Watched(count_case(rows, size=50), policy or FullSnapshot(3), loss)
    for _ in range(batches):
        run.step()
    return run


def test_an_operator_that_pairs_its_inputs_may_lose_nothing() -> None:
    case: PairingCase = random_pairing(random.Random(1))
    query = Query(case, SimulatedDisk(), Continuous(), loss=Loss.BOUNDED)
    with pytest.raises(SettingError, match=r"pairs the tuples of its inputs \(left, right\)") as no:
        query.open()
    assert no.value.where == "loss"


def test_windows_of_a_count_that_overlap_may_lose_nothing() -> None:
    overlapping = count_case([[(1, 1)]], size=5, slide=3)
    with pytest.raises(SettingError, match="have lost count"):
        Query(overlapping, SimulatedDisk(), Continuous(), loss=Loss.BOUNDED).open()
    for slide in (5, 7):  # one after another, or with a gap between
        case = count_case([[(1, 1)]], size=5, slide=slide)
        assert Query(case, SimulatedDisk(), Continuous(), loss=Loss.BOUNDED).open()


def test_states_that_keys_begin_with_are_no_second_input() -> None:
    case = small_keyed()
    user = case.code()
    made = Keyed(case.schema, user, by=case.by, output=case.output, time="at", has_initial=True)
    assert [port.is_stream for port in made.ports] == [True, False]

    class Given:
        def operator(self) -> Keyed:
            return made

    query: Any = Query(Given(), SimulatedDisk(), Continuous(), loss=Loss.BOUNDED)  # type: ignore[arg-type]
    assert query.open()


def test_a_state_that_refers_to_its_input_may_lose_nothing() -> None:
    check_refers_to_nothing(None, Loss.BOUNDED)
    check_refers_to_nothing(3, Loss.NONE)
    with pytest.raises(SettingError, match=r"refers to tuples in the input log \(from batch 3"):
        check_refers_to_nothing(3, Loss.BOUNDED)


@pytest.mark.parametrize("wrong", ["some", "", None, True, 3])
def test_any_other_loss_is_refused(wrong: Any) -> None:
    with pytest.raises(SettingError, match="must be 'none' or 'bounded'") as refused:
        asked_loss(wrong)
    assert refused.value.where == "loss"


def test_a_recovery_loads_what_was_written_last_and_says_what_it_lost() -> None:
    run = _run()
    run.restart()
    report = run.step()
    assert report.recovery is not None
    plan = report.recovery.plan
    assert (plan.target, plan.base, plan.oldest, plan.replay_from) == (7, 7, 6, 8)
    assert plan.foundation is Foundation.FOOTPRINTS
    assert plan.lost == Lost(batches=1, tuples=20)
    assert report.recovery.replay_us == 0
    assert "lose     at most 20 tuples of 1 batch" in str(plan)
    assert report.footprints_opened == report.account.open_windows, "it begins anew"


def test_a_policy_that_writes_nothing_loses_everything() -> None:
    run = _run(policy=NoCheckpoint())
    found, report = run.recovered()
    assert found == {}
    assert report.plan.segments_read == 0
    assert report.plan.lost == Lost(batches=8, tuples=160, windows=12)


def test_tuples_are_estimated_where_the_footers_are_damaged_and_the_input_is_gone() -> None:
    clock = iter(range(10**15, 2 * 10**15, 1_000_000))
    run = _run(batches=0)
    run.query.wall = lambda: next(clock)
    for _ in range(12):
        run.step()
        (bucket,) = run.query.open()
        bucket.trim()
    exact = _lost(run)
    assert (exact.tuples, exact.is_estimate) == (40, False)
    for damaged in (11, 10):  # the input of both is there
        flip_in(run.disk, Stream.OUTPUT, damaged, 0.9)
        lost = _lost(run)
        assert (lost.tuples, lost.is_estimate, lost.windows) == (40, False, None)
    flip_in(run.disk, Stream.OUTPUT, 9, 0.9)
    lost = _lost(run)
    assert lost.is_estimate
    assert lost.tuples == pytest.approx(5 * 20, rel=0.3), "from the footprints of batch 6 on"
    assert "by an estimate" in str(lost)


def _lost(run: Watched) -> Lost:
    _, report = run.recovered()
    assert report.plan.lost is not None
    return report.plan.lost


def test_footprints_in_damaged_segments_are_counted_where_the_footer_tells() -> None:
    run = _run()
    flip_in(run.disk, Stream.OUTPUT, 6, 0.3)
    lost = _lost(run)
    assert lost == Lost(batches=4, tuples=80, windows=12, doubtful=12, footprints=12)
    assert "12 windows may be back" in str(lost)
    flip_in(run.disk, Stream.OUTPUT, 6, 0.9)
    assert _lost(run).footprints == 0


def test_a_log_without_one_readable_segment_leaves_nothing_and_the_query_goes_on() -> None:
    run = _run()
    for batch in range(8):
        flip_in(run.disk, Stream.OUTPUT, batch)
    lost = _lost(run)
    assert (lost.batches, lost.tuples, lost.is_estimate, lost.windows) == (8, 160, True, None)
    run.restart()
    report = run.step()
    assert report.account.open_windows == 12
    assert run.recovered()[0] == run.seen[8].states


def test_nothing_exact_is_made_of_what_was_written_with_loss_accepted() -> None:
    """The first batch without loss is all that leads to the state after it."""
    run = _run()
    run.restart(loss=Loss.NONE)
    first = run.step()
    assert first.recovery is not None
    assert first.recovery.plan.lost == Lost(batches=1, tuples=20)
    run.step()
    whole = run.disk.copy()
    found, report = run.recovered()
    assert report.plan.lost is None
    assert found == run.seen[9].states
    flip_in(run.disk, Stream.OUTPUT, first.batch)
    with pytest.raises(MissingInput, match="loss was accepted") as refused:
        run.recovered()
    assert "loss='bounded'" in refused.value.fix
    assert run.recovered(Loss.BOUNDED)[0].keys() == run.seen[9].states.keys()
    run.disk = whole
    flip_in(run.disk, Stream.OUTPUT, 9)
    assert run.recovered()[0] == run.seen[9].states, "and then it is gone around as ever"


def test_a_state_is_shown_as_of_batches_that_nothing_is_missing_from() -> None:
    run = _run()
    state = open_state(run.disk.storage())
    assert state.table(6).num_rows == 12
    for batch in (4, 5):
        with pytest.raises(MissingInput, match=r"loss='bounded'.*missing are at most") as refused:
            state.table(batch)
        assert "0, 3, 6" in refused.value.fix


def test_status_and_progress_tell_of_loss() -> None:
    run = _run()
    status = read_status(run.disk.storage())
    text = "\n".join(lines_of(draw(status, "orders")))
    assert "loss              bounded: a recovery now would lose at most 20 tuples" in text
    assert "read     2 output segments" in str(plan_bucket(OperatorFiles(run.disk.storage()), 0))
    run.restart()
    run.step()
    text = "\n".join(lines_of(draw(read_status(run.disk.storage()), "orders")))
    assert "12 windows from 2 segments, lost: at most 20 tuples of 1 batch" in text
    progress = read_progress(run.disk.storage(), run.query.logs().meta, 8)
    (recovery,) = progress.recoveries
    assert recovery.lost == Lost(batches=1, tuples=20)
    assert str(recovery).endswith("lost: at most 20 tuples of 1 batch")


def test_a_recovery_that_lost_nothing_says_so() -> None:
    lost = Lost(0, 0)
    assert (lost.is_nothing, str(lost)) == (True, "nothing")
    assert Lost.from_attributes(lost.describe()) == lost
    assert Lost.from_attributes(Lost(1, 2, True, None, 3, 4).describe()) == Lost(
        1, 2, True, None, 3, 4
    )
    assert Lost.from_attributes(None) is None
    assert Lost.from_attributes({"tuples": "many"}) == lost


def test_without_loss_nothing_is_said_of_it() -> None:
    rows = random_orders(random.Random(1), batches=6, rows=20, items=12)
    run = Followed(count_case(rows, size=50), FullSnapshot(3))
    run.run(5)
    run.query.stop()
    (report,) = run.step()
    assert report.recovery is not None
    assert report.recovery.plan.lost is None
    assert "lost" not in report.recovery.describe()
