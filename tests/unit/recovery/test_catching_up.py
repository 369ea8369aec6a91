"""An older table of a bucket is brought up to the newest batch, where that leads to the same."""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.crashes import OTHER_KINDS, at_any_price
from tests.support.followed import Followed
from tests.support.harm import flip_anywhere, flip_in
from tests.support.orders import count_case, random_orders, random_timed_orders, time_case
from tests.support.policies import ONE_OF_EACH, policy_for
from tests.support.replicas import Replica, random_sliced
from tests.support.seeds import reported, seeds
from tests.support.strategies import random_case
from trailmark.checkpoint.policy import Continuous, FullSnapshot, NoCheckpoint, UpstreamBackup
from trailmark.drawing.operators import draw_operator
from trailmark.drawing.text import lines_of
from trailmark.engine import BatchReport
from trailmark.inspection import read_status
from trailmark.records import Loss, Stream
from trailmark.recovery.catching_up import CaughtUp

_HERE, _THERE = "here", "there"
#: Their accounts do not go by the footprints in the output log.
_NOT_COUNTED = ("upstream backup", "snapshots behind", "deltas")


class Moving:
    """A query that runs on one of several hosts at a time; each has a cache of its own."""

    def __init__(self, run: Followed, root: Path) -> None:
        self.run = run
        self._root = root
        self.go(_HERE)

    def go(self, host: str) -> None:
        """The next process is on this host."""
        self.run.query.stop()
        self.run.query.cache_root = self._root / host

    def step(self) -> BatchReport:
        """One batch, whose results, log and state are judged."""
        (report,) = self.run.step()
        return report

    def leave_and_return(self, here: int = 3, there: int = 3) -> BatchReport:
        """So many batches here, so many there; the report of the one after."""
        self.run.run(here)
        self.go(_THERE)
        self.run.run(there)
        self.go(_HERE)
        return self.step()

    def token(self) -> Path:
        (found,) = (self._root / _HERE).glob("*/00000/token")
        return found


def _counted(policy: object = None, seed: int = 3) -> Followed:
    batches = random_orders(random.Random(seed), batches=12, rows=25, items=12)
    run = Followed(count_case(batches, size=5, slide=3), Continuous(q=60, u=40))
    if policy is not None:
        run.query.policy = policy  # type: ignore[assignment]
    return run


def _timed(seed: int = 4) -> Followed:
    batches = random_timed_orders(random.Random(seed), batches=12, rows=20, items=5)
    return Followed(time_case(batches), Continuous(q=60, u=40))


@pytest.fixture
def _any_price() -> Iterator[None]:
    with at_any_price():
        yield


@pytest.mark.usefixtures("_any_price")
@pytest.mark.parametrize("make", [_counted, _timed], ids=["count", "time"])
@pytest.mark.parametrize("policy", ONE_OF_EACH)
def test_a_bucket_that_comes_back_goes_on_from_its_old_table(
    policy: str, make: Callable[[], Followed], tmp_path: Path
) -> None:
    run = make()
    run.query.policy = ONE_OF_EACH[policy]
    moving = Moving(run, tmp_path)
    report = moving.leave_and_return()
    assert report.recovery is None
    found = report.caught_up
    assert found is not None
    tuples = sum(run.query.logs().input(0).read(b).footer.fingerprint.rows for b in (3, 4, 5))
    assert (found.after, found.batches, found.tuples) == (2, 3, tuples)
    for _ in range(3):
        if policy not in _NOT_COUNTED:
            run.check_accounts()
        run.copy().step()  # which recovers, and is judged
        run.step()
    run.query.stop()
    (last,) = run.step()
    assert last.recovery is None
    assert last.caught_up is None, "its table is the current one again"


@pytest.mark.usefixtures("_any_price")
def test_all_windows_count_as_having_no_footprint(tmp_path: Path) -> None:
    run = _counted(Continuous())
    report = Moving(run, tmp_path).leave_and_return()
    assert report.footprints_opened == report.account.open_windows > 0
    assert report.account.oldest == 6


@pytest.mark.usefixtures("_any_price")
def test_footers_and_status_say_how_old_the_table_was(tmp_path: Path) -> None:
    run = _counted()
    report = Moving(run, tmp_path).leave_and_return()
    footer, _ = run.query.logs().output(0).read_footer(6)
    assert "recovery" not in footer.attributes
    assert CaughtUp.from_attributes(footer.attributes["caught_up"]) == report.caught_up
    status = read_status(run.disk.storage())
    assert status.older_table is not None
    assert status.older_table.batch == 6
    assert status.describe()["older_table"]["caught_up"]["batches"] == 3
    lines = lines_of(draw_operator(status, "path"))
    (line,) = (line for line in lines if line.startswith("last older table"))
    assert "bucket 0 before batch 6: a table 3 batches old caught up in " in line


@pytest.mark.parametrize("found", [None, 7, {}, {"after": 1}, {"after": "x"}])
def test_a_footer_that_says_nothing_of_the_kind_is_read(found: object) -> None:
    assert CaughtUp.from_attributes(found) is None


def test_a_recovery_that_is_predicted_to_be_quicker_is_preferred(tmp_path: Path) -> None:
    """Every batch has all windows, so a recovery reads one segment."""
    report = Moving(_counted(FullSnapshot(1)), tmp_path).leave_and_return(2, 8)
    assert report.caught_up is None
    assert report.recovery is not None


def test_an_old_table_saves_a_long_recovery(tmp_path: Path) -> None:
    report = Moving(_counted(NoCheckpoint()), tmp_path).leave_and_return(8, 1)
    assert report.recovery is None
    assert report.caught_up is not None
    assert report.caught_up.recovery_us > 0


def _trim_input(moving: Moving) -> None:
    bucket = moving.run.query.open()[0]
    bucket.trim(acknowledged=moving.run.next_batch)
    assert moving.run.query.logs().input(0).oldest() > 3


def _damage_footer(moving: Moving) -> None:
    flip_in(moving.run.disk, Stream.OUTPUT, 4, 1.0)


def _damage_own_segment(moving: Moving) -> None:
    flip_in(moving.run.disk, Stream.OUTPUT, 2, 1.0)


def _damage_input(moving: Moving) -> None:
    flip_in(moving.run.disk, Stream.INPUT, 4)


def _accept_loss(moving: Moving) -> None:
    moving.run.query.loss = Loss.BOUNDED


def _go_around_damage(moving: Moving) -> None:
    moving.run.query.stop()
    assert moving.run.query.cache_root is not None
    for token in moving.run.query.cache_root.glob("*/*/token"):
        token.unlink()
    flip_in(moving.run.disk, Stream.OUTPUT, moving.run.next_batch - 1)
    report = moving.step()
    assert report.recovery is not None
    assert report.recovery.plan.skipped


def _lie(moving: Moving) -> None:
    """The token names an earlier segment as it is in the log; the table is not the state after."""
    _, checksum = moving.run.query.logs().output(0).read_footer(1)
    token = json.loads(moving.token().read_text())
    token["output"] = {"batch": 1, "checksum": checksum}
    moving.token().write_text(json.dumps(token))


def _name_another_segment(moving: Moving) -> None:
    token = json.loads(moving.token().read_text())
    token["output"]["checksum"] ^= 1
    moving.token().write_text(json.dumps(token))


@pytest.mark.usefixtures("_any_price")
@pytest.mark.parametrize(
    "change",
    [
        _trim_input,
        _damage_footer,
        _damage_own_segment,
        _damage_input,
        _accept_loss,
        _go_around_damage,
        _lie,
        _name_another_segment,
    ],
)
def test_where_it_does_not_lead_to_the_same_there_is_a_recovery(
    change: Callable[[Moving], None], tmp_path: Path
) -> None:
    run = _timed()
    run.query.policy = FullSnapshot(1)
    moving = Moving(run, tmp_path)
    moving.run.run(3)
    moving.go(_THERE)
    moving.run.run(4)
    change(moving)
    moving.go(_HERE)
    report = moving.step()
    assert report.caught_up is None
    assert report.recovery is not None
    moving.run.run(1)


@pytest.mark.usefixtures("_any_price")
def test_nothing_is_caught_up_where_loss_was_accepted_meanwhile(tmp_path: Path) -> None:
    moving = Moving(_timed(), tmp_path)
    moving.run.run(3)
    moving.run.query.stop()
    shutil.copytree(tmp_path / _HERE, tmp_path / _THERE)
    for loss in (Loss.BOUNDED, Loss.NONE):  # from table to table, so that nothing is lost
        moving.go(_HERE)
        moving.run.query.loss = loss
        moving.run.run(2)
    moving.go(_THERE)
    report = moving.step()
    assert report.caught_up is None
    assert report.recovery is not None


@pytest.mark.usefixtures("_any_price")
def test_batches_in_which_windows_opened_stay_marked(tmp_path: Path) -> None:
    moved, stayed = _timed(), _timed()
    for run in (moved, stayed):
        run.query.policy = UpstreamBackup()
    report = Moving(moved, tmp_path).leave_and_return()
    assert report.caught_up is not None
    stayed.run(6)
    (expected,) = stayed.step()
    for account in (report.account, expected.account):
        assert account.open_windows > 0
    assert report.account.base == expected.account.base
    assert report.account.needs == expected.account.needs


@pytest.mark.usefixtures("_any_price")
def test_what_is_trimmed_is_never_what_a_recovery_needs_though_a_segment_be_damaged(
    tmp_path: Path,
) -> None:
    caught_up = 0
    for seed in seeds(30):
        rng = random.Random(seed)
        case = random_case(rng) if rng.random() < 0.5 else OTHER_KINDS["join"](rng)
        with reported(seed, case):
            run = Followed(case, policy_for(rng, case))
            moving = Moving(run, tmp_path / str(seed))
            while run.next_batch < len(case.batches):
                caught_up += moving.step().caught_up is not None
                if rng.random() < 0.4:
                    for bucket in run.query.open():
                        bucket.trim(acknowledged=run.next_batch)
                if run.next_batch < len(case.batches):
                    _recover_with_one_damaged(run, rng)
                if rng.random() < 0.5:
                    moving.go(rng.choice((_HERE, _THERE)))
            run.query.stop()
    assert caught_up > 0 or len(seeds(30)) < 10


def _recover_with_one_damaged(run: Followed, rng: random.Random) -> None:
    """In a copy, where any segment of the output may be unreadable; the state is judged."""
    twin = run.copy()
    held = twin.query.logs().output(0).batches()
    flip_anywhere(twin.disk, Stream.OUTPUT, rng.choice(held), rng)
    twin.step()
    twin.query.stop()


@pytest.mark.usefixtures("_any_price")
def test_numbered_results_keep_their_numbers(tmp_path: Path) -> None:
    moved = 0
    for seed in seeds(15):
        rng = random.Random(seed)
        replica = Replica(random_sliced(rng), rng.choice((1, 2)), rng, rng.choice((0.0, 0.3)))
        root = tmp_path / str(seed)
        replica.query.hosts = (root / _HERE, root / _THERE)
        replica.query.move(rng)
        moved += replica.run().caught_up
    assert moved > 0 or len(seeds(15)) < 10
