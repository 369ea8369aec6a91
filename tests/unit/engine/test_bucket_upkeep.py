"""Removing and merging files beside the batches."""

from __future__ import annotations

import errno
import random
import threading
from collections import Counter
from concurrent.futures import Future

import pytest

from tests.support.executors import AtOnce, Held
from tests.support.followed import Followed
from tests.support.orders import count_case, random_orders
from trailmark.checkpoint.policy import Continuous, FullSnapshot
from trailmark.engine import Bucket
from trailmark.errors import NoPermission
from trailmark.inspection import read_status
from trailmark.testing.disk import Crashed


def _run(batches: int) -> Followed:
    orders = random_orders(random.Random(5), batches=batches, rows=12, items=5)
    return Followed(count_case(orders), Continuous(u=40))


def _bucket(run: Followed, **given: object) -> Bucket:
    return Bucket(run.case.operator(), run.query.logs(), 0, Continuous(u=40), **given)  # type: ignore[arg-type]


def _feed(run: Followed, bucket: Bucket, first: int, last: int) -> None:
    for batch in range(first, last + 1):
        bucket.run(batch, run.case.batches[batch])


def _fail(run: Followed, held: Held) -> None:
    """What was held goes wrong."""
    run.disk.fail_on(1, errno.EACCES)
    held.let_go()


def _inputs(run: Followed) -> list[int]:
    return run.query.logs().input(0).batches()


def test_batches_go_on_while_files_are_being_removed() -> None:
    run, held = _run(31), Held()
    bucket = _bucket(run, beside=held)
    _feed(run, bucket, 0, 30)
    assert _inputs(run) == list(range(31))
    held.let_go()
    assert 1 < _inputs(run)[0] <= 15
    bucket.close()


def test_a_removal_waits_for_the_one_before() -> None:
    """Or files would pile up where they come faster than they go."""
    run, held = _run(32), Held()
    bucket = _bucket(run, beside=held)
    _feed(run, bucket, 0, 30)
    feeding = threading.Thread(target=_feed, args=(run, bucket, 31, 31))
    feeding.start()
    feeding.join(0.2)
    assert feeding.is_alive()
    held.let_go()
    feeding.join()
    assert len(held.held) == 1
    held.let_go()
    bucket.close()


def test_closing_waits_for_the_thread() -> None:
    run = _run(16)
    bucket = _bucket(run)
    _feed(run, bucket, 0, 15)
    bucket.close()
    assert _inputs(run)[0] > 1
    assert not [t for t in threading.enumerate() if t.name.startswith("upkeep-")]


def test_what_goes_wrong_fails_no_batch_but_warns(caplog: pytest.LogCaptureFixture) -> None:
    run, held = _run(32), Held()
    bucket = _bucket(run, beside=held)
    _feed(run, bucket, 0, 15)
    _fail(run, held)
    _feed(run, bucket, 16, 31)
    assert [record.getMessage().split(":")[0] for record in caplog.records] == [
        "bucket 0 could not trim its logs, which grow until it can"
    ]
    held.let_go()
    assert _inputs(run)[0] > 15
    bucket.close()


def test_what_is_due_begins_though_something_went_wrong_before(
    caplog: pytest.LogCaptureFixture,
) -> None:
    run, held = _run(256), Held()
    bucket = _bucket(run, beside=held)
    for first in range(0, 240, 16):
        _feed(run, bucket, first, first + 15)
        held.let_go()
    _feed(run, bucket, 240, 254)
    failed: Future[object] = Future()
    bucket._upkeep._under_way["trim"] = failed
    failed.set_exception(NoPermission("no", where="there"))
    _feed(run, bucket, 255, 255)
    assert "NoPermission: no (there)" in caplog.text
    assert len(held.held) == 2
    held.let_go()
    assert (_inputs(run)[0] > 240, len(_packs(run))) == (True, 1)
    bucket.close()


def test_what_goes_wrong_last_is_a_warning_at_the_end(caplog: pytest.LogCaptureFixture) -> None:
    run, held = _run(16), Held()
    bucket = _bucket(run, beside=held)
    _feed(run, bucket, 0, 15)
    _fail(run, held)
    bucket.close()
    assert "NoPermission" in caplog.text


def test_only_errors_on_purpose_become_warnings() -> None:
    run, held = _run(32), Held()
    bucket = _bucket(run, beside=held)
    failed: Future[object] = Future()
    bucket._upkeep._under_way["trim"] = failed
    failed.set_exception(Crashed())
    with pytest.raises(Crashed):
        _feed(run, bucket, 0, 0)
    bucket.close()


def test_a_damaged_reader_keeps_the_logs_and_is_told_every_ten_minutes(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """On Spark, every batch has a bucket of its own."""
    run = _run(128)
    storage = run.disk.storage()
    storage.publish("readers/x.json", [b"{"])
    for batch in range(128):
        bucket = _bucket(run, beside=AtOnce(), now_us=lambda at=batch: at * 10_000_000)
        assert not bucket.run(batch, run.case.batches[batch]).was_logged
        bucket.close()
    assert len(caplog.records) == 2, "in 1,280 seconds"
    assert "What reader 'x' needs cannot be read." in caplog.text
    assert _inputs(run)[0] == 0
    assert not read_status(storage).is_sound
    storage.delete("readers/x.json")
    bucket = _bucket(run)
    bucket.run(127, run.case.batches[127])
    bucket.trim()
    bucket.close()


def test_a_trim_that_is_asked_for_comes_after_the_one_under_way() -> None:
    run, held = _run(20), Held()
    bucket = _bucket(run, beside=held)
    _feed(run, bucket, 0, 19)
    trimming = threading.Thread(target=bucket.trim)
    trimming.start()
    trimming.join(0.2)
    assert trimming.is_alive()
    held.let_go()
    trimming.join()
    before = _inputs(run)[0]
    assert before > 1
    (inputs, _) = bucket.trim()
    assert (inputs.deleted, inputs.oldest) == ([], before), "it was all removed"
    bucket.close()


def test_batches_and_removals_go_on_while_a_merge_runs() -> None:
    run, held = _run(300), Held()
    bucket = _bucket(run, beside=held)
    _feed(run, bucket, 0, 15)
    for first in range(16, 288, 16):
        # The removal: batch 255 begins a merge behind it, which then lies before the others.
        held.held.pop(0 if first == 256 else -1)()
        _feed(run, bucket, first, first + 15)
    assert (len(held.held), _inputs(run)[0] > 255) == (2, True)
    assert not _packs(run)
    held.let_go()
    assert len(_packs(run)) == 1
    output = run.query.logs().output(0)
    assert output.batches() == list(range(288))
    assert output.verify().is_whole
    bucket.close()


def test_segments_become_spares_and_snapshots_do_not() -> None:
    """A spare of the state would be as large as the state."""
    run = _run(100)
    policy = FullSnapshot(3, asynchronous=True)
    bucket = Bucket(run.case.operator(), run.query.logs(), 0, policy, beside=AtOnce())
    _feed(run, bucket, 0, 99)
    bucket.close()
    spares = Counter(path.split("/")[0] for path in run.disk.files() if "/spare-" in path)
    assert spares.keys() == {"in"}
    assert 0 < spares["in"] <= 16
    assert len(run.query.logs().snapshots(0).batches()) < 12


def _packs(run: Followed) -> list[str]:
    return [path for path in run.disk.files() if path.endswith(".pack")]
