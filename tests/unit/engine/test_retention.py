"""How long output is kept, and who may ask for it again."""

from __future__ import annotations

import random

import pytest

from tests.support.executors import AtOnce
from tests.support.followed import Followed
from tests.support.harm import bring_back, segment_path
from tests.support.orders import count_case, random_orders
from trailmark.checkpoint.policy import Continuous, FullSnapshot
from trailmark.engine import Bucket
from trailmark.errors import BatchGoesBackward
from trailmark.records import Stream


def _run(batches: int) -> Followed:
    return Followed(
        count_case(random_orders(random.Random(3), batches=batches, rows=12, items=5)),
        Continuous(u=40),
    )


def _bucket(run: Followed, **given: object) -> Bucket:
    return Bucket(run.case.operator(), run.query.logs(), 0, Continuous(u=40), **given)  # type: ignore[arg-type]


def test_output_is_removed_once_it_is_old_and_no_recovery_needs_it() -> None:
    run = _run(100)
    bucket = _bucket(run, retain_batches=20, beside=AtOnce())
    for batch, rows in enumerate(run.case.batches):
        bucket.run(batch, rows)
    held = run.query.logs().output(0).batches()
    assert held[-1] == 99
    assert 20 <= len(held) <= 20 + 16
    bucket.close()
    report = _bucket(run, retain_batches=20).run(99, run.case.batches[99])
    assert report.was_logged


def test_only_a_part_of_what_a_snapshot_makes_superfluous_is_removed_at_once() -> None:
    run = _run(300)
    storage = run.query.logs().storage
    bucket = Bucket(run.case.operator(), run.query.logs(), 0, FullSnapshot(60), beside=AtOnce())
    removed, before = [], set[str]()
    for batch, rows in enumerate(run.case.batches):
        bucket.run(batch, rows)
        after = {entry.name for entry in storage.list("in/00000") if entry.name.endswith(".seg")}
        removed.append(len(before - after))
        before = after
    assert max(removed) == 32
    oldest = run.query.logs().input(0).oldest()
    assert sum(removed) == oldest > 150, "in the end all of it"


def test_without_a_limit_all_output_is_kept_in_few_files() -> None:
    run = _run(300)
    bucket = _bucket(run)
    for batch, rows in enumerate(run.case.batches):
        bucket.run(batch, rows)
    bucket.close()
    logs = run.query.logs()
    assert logs.output(0).batches() == list(range(300))
    assert len(logs.storage.list("out/00000")) < 100


def test_a_bucket_that_answers_no_older_batches_says_that_the_query_went_back() -> None:
    run = _run(5)
    bucket = _bucket(run, answers_older=False)
    for batch, rows in enumerate(run.case.batches):
        bucket.run(batch, rows)
    assert bucket.run(4, run.case.batches[4]).was_logged
    with pytest.raises(BatchGoesBackward, match="the log holds later ones") as refused:
        bucket.run(3, run.case.batches[3])
    assert "checkpoint was deleted or rolled back" in refused.value.fix


def test_a_batch_that_was_trimmed_and_came_back_is_not_answered() -> None:
    """Nobody would see that the query went back where the batch behind it has not come back."""
    run = _run(8)
    bucket = _bucket(run, answers_older=False)
    for batch, rows in enumerate(run.case.batches):
        bucket.run(batch, rows)
    bucket.close()
    earlier = run.disk.copy()
    for stream, log in (
        (Stream.INPUT, run.query.logs().input(0)),
        (Stream.OUTPUT, run.query.logs().output(0)),
    ):
        log.trim(5)
        bring_back(run.disk, earlier, [segment_path(stream, 2)])
    operations = run.disk.operations
    for batch in (2, 3):
        with pytest.raises(BatchGoesBackward, match=f"Batch {batch} "):
            _bucket(run, answers_older=False).run(batch, run.case.batches[batch])
    assert run.disk.operations == operations
