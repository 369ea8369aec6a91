"""Several processes on one log: they race, are killed, and hand buckets on to one another."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

import pyarrow as pa

from tests.support.compare import assert_same_rows, assert_same_states, table_states
from tests.support.oracle import Oracle
from tests.support.orders import (
    count_case,
    random_orders,
    random_timed_orders,
    time_case,
    timed_orders,
)
from tests.support.plain import plain_rows
from tests.support.processes import Pipe, Place, Run, Worker, serve
from tests.support.seeds import seeds
from tests.support.verdict import assert_logs_are_right, assert_state_is_right
from trailmark.checkpoint.policy import Continuous
from trailmark.engine import BatchReport
from trailmark.records import FrameKind


def _shuffled(rows: pa.RecordBatch, rng: random.Random) -> pa.RecordBatch:
    order = list(range(rows.num_rows))
    rng.shuffle(order)
    return rows.take(pa.array(order, pa.int64()))


def _segments(directory: Path, batch: int) -> list[str]:
    """Files of a batch, without those that are being written."""
    names = os.listdir(directory)
    return [name for name in names if f"{batch:020d}" in name and not name.startswith(".")]


# Two processes race for the same batch


_ROUNDS = 120


def test_two_processes_racing_for_a_batch_make_one_segment_and_give_one_answer(
    tmp_path: Path,
) -> None:
    rng = random.Random(1)
    batches = random_orders(rng, batches=_ROUNDS, rows=40, items=12)
    case = count_case(batches, size=4, slide=3)
    place = Place(tmp_path / "log", case, Continuous(u=90), cache=tmp_path / "cache")
    oracle = case.oracle()
    created = [0, 0]
    with Worker(serve, place) as first, Worker(serve, place) as second:
        for batch, rows in enumerate(case.batches):
            # Now and then one lets go of its state, and with it of the cache.
            keep = [rng.random() < 0.9, rng.random() < 0.9]
            at = time.monotonic() + 0.004
            for worker, is_kept in zip((first, second), keep, strict=True):
                worker.send(Run(batch, _shuffled(rows, rng), at=at, keep=is_kept))
            answers: list[BatchReport] = [first.receive(), second.receive()]
            for number, answer in enumerate(answers):
                assert isinstance(answer, BatchReport), answer
                created[number] += not answer.was_logged
            assert [a.was_logged for a in answers].count(False) == 1, "one of them made it"
            _check_round(place, oracle, batch, answers)
        for worker in (first, second):
            worker.send(None)
            worker.finish()
    assert not [path for path in place.path.rglob("*") if path.name.startswith(".")]
    assert min(created) > 0, f"both have won: {created}"
    assert_state_is_right(place, 0, oracle, _ROUNDS - 1)


def _check_round(place: Place, oracle: Oracle, batch: int, answers: Sequence[BatchReport]) -> None:
    for log in ("in/00000", "out/00000"):
        assert _segments(place.path / log, batch) == [f"{batch:020d}.seg"]
    logged = place.logs().input(0).read(batch).table(FrameKind.INPUT)
    assert logged is not None
    rows = [row for part in logged.to_batches() for row in plain_rows(part)]
    expected = oracle.published(oracle.process(batch, rows).results)
    for answer in answers:
        assert_same_rows(answer.results, expected, f"batch {batch}")


# A process that is killed again and again


_KILLS = 26


def _endless_rows(batch: int) -> pa.RecordBatch:
    """The rows of any batch, the same in every process."""
    rng = random.Random(batch)
    made = random_timed_orders(rng, batches=1, rows=40, items=30)[0]
    later = [
        (item, price, None if at is None else at + batch * 3_000_000) for item, price, at in made
    ]
    return timed_orders(later)


def run_without_end(pipe: Pipe, place: Place, seed: float, last: int | None) -> None:
    """Goes on from where the log stands, batch by batch, as a restarted query does."""
    buckets = [place.bucket(number) for number in range(place.buckets)]
    rng = random.Random(seed)
    batch = max(0, min(place.logs().output(number).newest() for number in range(place.buckets)))
    place.case.split(_endless_rows(batch), place.buckets)  # what that imports is not our subject
    pipe.send(batch)
    while last is None or batch <= last:
        parts = place.case.split(_endless_rows(batch), place.buckets)
        for bucket, rows in zip(buckets, parts, strict=True):
            bucket.run(batch, rows)
            if rng.random() < 0.3:
                bucket.close()
        if rng.random() < 0.1:
            for number in range(place.buckets):
                place.logs().output(number).merge(batch - 2)
        batch += 1
    for bucket in buckets:
        bucket.close()


def test_a_process_killed_at_any_moment_and_started_again_loses_and_repeats_nothing(
    tmp_path: Path,
) -> None:
    (seed,) = seeds(1)[:1]
    rng = random.Random(seed)
    case = time_case([[]], slide=5_000_000)
    place = Place(tmp_path / "log", case, Continuous(u=300), 2, tmp_path / "cache")
    place.logs()
    stood = []
    for _ in range(_KILLS):
        with Worker(run_without_end, place, rng.random(), None) as worker:
            stood.append(worker.receive())
            time.sleep(rng.uniform(0.0, 0.25))
            worker.kill()
    assert stood == sorted(stood), "what was published stays"
    assert stood[-1] > _KILLS, "it gets on between two kills"
    last = place.logs().output(0).newest() + 5
    with Worker(run_without_end, place, seed, last) as worker:
        worker.receive()
        worker.finish()
    batches = [_endless_rows(batch) for batch in range(last + 1)]
    oracles = assert_logs_are_right(place, batches)
    for number, oracle in enumerate(oracles):
        assert_state_is_right(place, number, oracle, last)
    _assert_cache_is_right(place, oracles, last)
    assert 3 <= _half_changed(place, last) < 2 * _KILLS, "some were killed in mid-batch, not all"


def _half_changed(place: Place, last: int) -> int:
    """How often a process found a table that its predecessor had not finished changing."""
    found = 0
    for number in range(place.buckets):
        log = place.logs().output(number)
        for batch in range(last + 1):
            recovery = log.read_footer(batch)[0].attributes.get("recovery", {})
            found += recovery.get("why") == "no whole table in the cache"
    return found


def _assert_cache_is_right(place: Place, oracles: Sequence[Oracle], last: int) -> None:
    """The tables left in the cache give the state after one more batch."""
    parts = place.case.split(timed_orders([]), place.buckets)
    for number, oracle in enumerate(oracles):
        bucket = place.bucket(number)
        report = bucket.run(last + 1, parts[number])
        assert report.recovery is None, "the last process left its table"
        before = place.logs().output(number).read_footer(last)[0].attributes["watermark"]
        oracle.process(last + 1, [], before, report.account.watermark)
        table = bucket.state()
        assert table is not None
        found = table_states(place.case.operator(), table)
        assert_same_states(found, oracle.open_windows(), f"bucket {number}, from the cache")
        bucket.close()


# Many buckets, several processes


def test_many_buckets_handed_from_process_to_process_equal_the_oracle(tmp_path: Path) -> None:
    """As Spark does it: any process may get any bucket of the next batch."""
    buckets, processes, batches = 9, 3, 24
    rng = random.Random(2)
    case = time_case(
        random_timed_orders(rng, batches=batches, rows=120, items=60), slide=5_000_000, late="keep"
    )
    cache = tmp_path / "cache"
    place = Place(tmp_path / "log", case, Continuous(q=200, u=150), buckets, cache)
    with ExitStack() as stack:
        workers = [stack.enter_context(Worker(serve, place)) for _ in range(processes)]
        for batch, rows in enumerate(case.batches):
            parts = case.split(rows, buckets)
            numbers = rng.sample(range(buckets), buckets)
            for turn in range(0, buckets, processes):
                share = numbers[turn : turn + processes]
                for worker, number in zip(workers, share, strict=True):
                    worker.send(Run(batch, parts[number], number, keep=False))
                for worker in workers:
                    answer = worker.receive()
                    assert isinstance(answer, BatchReport), answer
                    assert not answer.was_logged
                    assert answer.recovery is None, "another process left its table"
    for number, oracle in enumerate(assert_logs_are_right(place, case.batches)):
        assert_state_is_right(place, number, oracle, batches - 1)


def test_processes_that_create_the_same_logs_at_once_agree_on_them(tmp_path: Path) -> None:
    case = count_case([[(item, 1) for item in range(40)]], size=5)
    for round_ in range(12):
        place = Place(tmp_path / f"log {round_}", case, Continuous(), 4)
        parts = case.split(case.batches[0], 4)
        with ExitStack() as stack:
            workers = [stack.enter_context(Worker(serve, place)) for _ in range(4)]
            at = time.monotonic() + 0.05
            for number, worker in enumerate(workers):
                worker.send(Run(0, parts[number], number, at=at))
            answers = [worker.receive() for worker in workers]
        assert all(isinstance(answer, BatchReport) for answer in answers), answers
        assert_logs_are_right(place, case.batches)
