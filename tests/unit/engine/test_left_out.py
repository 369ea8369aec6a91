"""A bucket that is left out of a batch is noticed by another, whatever is evaluated afterwards."""

from __future__ import annotations

import random
from collections.abc import Iterable

import pyarrow as pa
import pytest

from tests.support.executors import AtOnce
from tests.support.orders import count_case, random_orders
from trailmark.checkpoint.policy import Continuous
from trailmark.engine import Bucket, OperatorLogs
from trailmark.errors import BatchSkipped
from trailmark.testing.disk import SimulatedDisk

_BATCHES = 40


class Buckets:
    """All buckets of an operator, which Spark keeps in step."""

    def __init__(self, count: int, retain_batches: int | None = 1, first_batch: int = 0) -> None:
        self.disk = SimulatedDisk()
        self.count = count
        self.retain_batches = retain_batches
        rows = random_orders(random.Random(7), batches=_BATCHES, rows=6, items=5)
        self.case = count_case(rows)
        self.logs = OperatorLogs(
            self.disk.storage(), self.case.operator(), buckets=count, first_batch=first_batch
        )

    def run(self, batch: int, numbers: Iterable[int]) -> None:
        """Each in a task of its own, as on Spark."""
        for number in numbers:
            bucket = Bucket(
                self.case.operator(),
                self.logs,
                number,
                Continuous(u=12),
                retain_batches=self.retain_batches,
                in_step=True,
                beside=AtOnce(),
            )
            bucket.run(batch, self.rows(batch))
            bucket.close()

    def rows(self, batch: int) -> pa.RecordBatch:
        return self.case.batches[batch % _BATCHES]


@pytest.mark.parametrize("retain_batches", [1, 2, None])
@pytest.mark.parametrize("count", [1, 2, 3])
def test_buckets_that_all_run_are_never_refused(count: int, retain_batches: int | None) -> None:
    """In whatever order, while what they look for is trimmed and merged."""
    rng = random.Random(count)
    buckets = Buckets(count, retain_batches, first_batch=5)
    for batch in range(5, 5 + _BATCHES):
        buckets.run(batch, rng.sample(range(count), count))
        if batch % 9 == 0:
            for number in range(count):
                buckets.logs.output(number).merge(batch)


@pytest.mark.parametrize("count", [2, 3, 5])
def test_what_take_leaves_out_is_noticed_in_the_next_batch(count: int) -> None:
    """Spark evaluates from the first on, as far as it has to: another number in every batch."""
    for evaluated in range(1, count):
        for evaluated_next in range(1, count + 1):
            buckets = Buckets(count)
            buckets.run(0, range(count))
            buckets.run(1, range(evaluated))
            with pytest.raises(BatchSkipped) as refused:
                buckets.run(2, range(evaluated_next))
            assert "batch 1" in refused.value.what


@pytest.mark.parametrize("seed", range(20))
def test_a_bucket_that_never_runs_is_noticed_whichever_others_do(seed: int) -> None:
    rng = random.Random(seed)
    count = rng.randrange(2, 6)
    buckets = Buckets(count)
    left_out = rng.randrange(count)
    others = [number for number in range(count) if number != left_out]
    whole = rng.randrange(3)
    for batch in range(whole):
        buckets.run(batch, range(count))

    def run_on() -> None:
        for batch in range(whole, whole + count + 1):
            buckets.run(batch, rng.sample(others, rng.randrange(1, count)))

    with pytest.raises(BatchSkipped) as refused:
        run_on()
    assert refused.value.fix.startswith("A batch was left unevaluated, or evaluated in part")


def test_the_refusal_names_bucket_and_batch_and_changes_nothing() -> None:
    buckets = Buckets(3)
    buckets.run(0, range(3))
    buckets.run(1, [0])
    before = {path: buckets.disk.content(path) for path in buckets.disk.files()}
    with pytest.raises(BatchSkipped, match="bucket 2 has not taken batch 1") as refused:
        buckets.run(2, [0])
    assert refused.value.where == "out/00002"
    assert {path: buckets.disk.content(path) for path in buckets.disk.files()} == before
