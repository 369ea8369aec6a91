"""Several processes on one log: racing, killed, stopped and gone on, reading while others write."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.support.compare import assert_same_rows, assert_same_states, table_states
from tests.support.disk import SimulatedDisk
from tests.support.engine import split
from tests.support.hooked import HookedAggregate
from tests.support.logs import fill, open_log
from tests.support.oracle import Oracle
from tests.support.orders import (
    count_case,
    orders,
    random_orders,
    random_timed_orders,
    time_case,
    timed_orders,
)
from tests.support.plain import plain_rows
from tests.support.processes import STEPS, Pipe, Place, Run, Worker, serve
from tests.support.seeds import seeds
from tests.support.verdict import (
    assert_logs_are_right,
    assert_state_is_right,
    logged_results,
    recovered_states,
)
from trailmark.checkpoint.policy import Continuous, NoCheckpoint
from trailmark.engine import BatchReport
from trailmark.errors import BatchGoesBackward, MissingInput, TrailmarkError
from trailmark.log import StreamLog
from trailmark.log.storage.file_system import DirectoryEntry
from trailmark.records import FrameKind
from trailmark.settings import LogSettings


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
    split(place.case, _endless_rows(batch), place.buckets)  # what that imports is not our subject
    pipe.send(batch)
    while last is None or batch <= last:
        parts = split(place.case, _endless_rows(batch), place.buckets)
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
    parts = split(place.case, timed_orders([]), place.buckets)
    for number, oracle in enumerate(oracles):
        bucket = place.bucket(number)
        report = bucket.run(last + 1, parts[number])
        assert report.recovery is None, "the last process left its table"
        before = place.logs().output(number).read_footer(last)[0].attributes["watermark"]
        oracle.process(last + 1, [], before, report.account.watermark)
        table = bucket.table()
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
            parts = split(case, rows, buckets)
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
        parts = split(case, case.batches[0], 4)
        with ExitStack() as stack:
            workers = [stack.enter_context(Worker(serve, place)) for _ in range(4)]
            at = time.monotonic() + 0.05
            for number, worker in enumerate(workers):
                worker.send(Run(0, parts[number], number, at=at))
            answers = [worker.receive() for worker in workers]
        assert all(isinstance(answer, BatchReport) for answer in answers), answers
        assert_logs_are_right(place, case.batches)


# A reader during merges


def write_and_merge(pipe: Pipe, place: Place, seed: int) -> None:
    """Runs all batches and merges all the time."""
    rng = random.Random(seed)
    bucket = place.bucket()
    logs = place.logs()
    for batch, rows in enumerate(place.case.batches):
        bucket.run(batch, rows)
        for log in (logs.output(0), logs.input(0)):
            log.merge(rng.randint(0, batch))
    pipe.send(len(place.case.batches))
    bucket.close()


@pytest.mark.parametrize("merge_bytes", [4_000, 20_000, 64 << 20])
def test_a_reader_sees_every_batch_whole_and_once_while_others_write_and_merge(
    tmp_path: Path, merge_bytes: int
) -> None:
    batches = random_orders(random.Random(3), batches=70, rows=25, items=9)
    case = count_case(batches, size=4)
    settings = LogSettings(merge_bytes=merge_bytes)
    place = Place(tmp_path / "log", case, NoCheckpoint(), settings=settings)
    oracle = case.oracle()
    expected = [
        oracle.process(batch, plain_rows(rows)).results for batch, rows in enumerate(case.batches)
    ]
    log = place.logs().output(0)
    rng = random.Random(4)
    with Worker(write_and_merge, place, 5) as worker:
        seen = -1
        while seen < len(batches) - 1:
            found = [segment.batch for segment in log.read_from()]
            assert found == list(range(len(found))), "every batch, once, in order"
            assert len(found) > seen, "what was seen stays"
            seen = max(seen, len(found) - 1)
            if seen < 0:
                continue
            batch = rng.randint(0, seen)
            assert log.contains(batch)
            assert_same_rows(logged_results(log.read(batch)), expected[batch], f"batch {batch}")
            back = [segment.batch for segment in log.read_backward(batch)]
            assert back == list(range(batch, -1, -1))
        assert worker.receive() == len(batches)
        worker.finish()
    assert any(name.endswith(".pack") for name in os.listdir(tmp_path / "log/out/00000"))
    assert_logs_are_right(place, case.batches)


@dataclass
class OvertakenDisk(SimulatedDisk):
    """Something happens in the middle of one listing: the names before it are seen as they were
    then, the others as they are after it."""

    at_listing: int = 0
    meanwhile: Callable[[], object] | None = None

    def list_directory(self, path: str) -> list[DirectoryEntry]:
        early = super().list_directory(path)
        self.at_listing -= 1
        if self.at_listing != 0 or self.meanwhile is None:
            return early
        self.meanwhile()
        late = super().list_directory(path)
        middle = sorted(entry.name for entry in early)[len(early) // 2]
        # In an order that is bad for whoever reads: packs early, the segments they replace late.
        return [e for e in early if e.name.endswith(".pack") or e.name > middle] + [
            e for e in late if not e.name.endswith(".pack") and e.name <= middle
        ]


@pytest.mark.parametrize("at_listing", [1, 2, 3, 4])
@pytest.mark.parametrize("has_pack", [False, True])
def test_a_merge_in_the_middle_of_a_listing_hides_no_batch(at_listing: int, has_pack: bool) -> None:
    disk = OvertakenDisk()
    log = open_log(disk.storage())
    fill(log, 12)
    if has_pack:
        log.merge(3)
    other = open_log(disk.storage())
    reads: list[Callable[[StreamLog], list[int]]] = [
        StreamLog.batches,
        lambda log: [segment.batch for segment in log.read_from()],
        lambda log: [segment.batch for segment in log.read_backward(11)][::-1],
        lambda log: [*range(log.oldest(), log.newest() + 1)],
        lambda log: [batch for batch in range(12) if log.contains(batch)],
    ]
    for read in reads:
        twin = OvertakenDisk(_root=disk.copy()._root, at_listing=at_listing)
        other = open_log(twin.storage())
        twin.meanwhile = lambda other=other: other.merge(10)
        assert read(open_log(twin.storage())) == list(range(12))


def test_recoveries_during_merges_are_exact(tmp_path: Path) -> None:
    batches = random_orders(random.Random(6), batches=60, rows=25, items=9)
    case = count_case(batches, size=4, slide=3)
    place = Place(tmp_path / "log", case, Continuous(u=60))
    oracle = case.oracle()
    states = []
    for batch, rows in enumerate(case.batches):
        oracle.process(batch, plain_rows(rows))
        states.append(oracle.open_windows())
    with Worker(write_and_merge, place, 7) as worker:
        recovered = 0
        newest = -1
        while newest < len(batches) - 1:
            newest = place.logs().output(0).newest()
            if newest >= 0:
                try:
                    found = recovered_states(place, 0, newest)
                except MissingInput:
                    continue  # so long that the input was trimmed meanwhile
                assert_same_states(found, states[newest], f"after batch {newest}")
                recovered += 1
        worker.receive()
        worker.finish()
    assert recovered > 3


# A trim during a replay


def recover_haltingly(pipe: Pipe, place: Place) -> None:
    """Recovers to a batch, and waits in the middle of the replay until it may go on."""
    while True:
        target, halt_at = pipe.recv()

        def halt(batch: int, halt_at: int = halt_at) -> None:
            if batch == halt_at:
                pipe.send("halted")
                pipe.recv()

        operator = HookedAggregate(place.case, on_replay=halt)
        try:
            pipe.send(recovered_states(place, 0, target, operator))
        except TrailmarkError as error:
            pipe.send(error)


def test_a_trim_during_a_replay_is_noticed_or_harmless(tmp_path: Path) -> None:
    batches = random_orders(random.Random(8), batches=10, rows=25, items=30)
    case = count_case(batches, size=50)
    source = Place(tmp_path / "source", case, Continuous())
    bucket = source.bucket()
    for batch, rows in enumerate(case.batches):
        bucket.run(batch, rows)
    bucket.close()
    oracle = assert_logs_are_right(source, case.batches)[0]
    outcomes = {"exact": 0, "refused": 0}
    copies = 0
    for halt_at in (1, 4, 8):
        for trim_to in (halt_at, halt_at + 1, halt_at + 2, 9):
            place = _copy(source, tmp_path / f"copy {copies}")
            copies += 1
            with Worker(recover_haltingly, place) as worker:
                assert worker.ask((9, halt_at)) == "halted"
                place.logs().input(0).trim(trim_to)
                answer = worker.ask("go on")
            if isinstance(answer, MissingInput):
                assert trim_to > halt_at + 1, "what is needed was there"
                assert "removed while it ran" in str(answer)
                outcomes["refused"] += 1
            else:
                assert not isinstance(answer, TrailmarkError), answer
                assert_same_states(answer, oracle.open_windows(), f"trimmed to {trim_to}")
                outcomes["exact"] += 1
    assert min(outcomes.values()) > 2, outcomes


def _copy(place: Place, path: Path) -> Place:
    for file in place.path.rglob("*"):
        if file.is_file():
            target = path / file.relative_to(place.path)
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(file.read_bytes())
    return Place(path, place.case, place.policy, place.buckets, place.cache, place.settings)


# A zombie


_GOES_ON = 5


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("after", ["nothing", "merge", "merge and trim"])
def test_a_process_that_was_thought_dead_harms_nothing_when_it_comes_back(
    tmp_path: Path, step: str, after: str
) -> None:
    rng = random.Random(9)
    batches = random_orders(rng, batches=14, rows=30, items=12)
    case = count_case(batches, size=5, slide=4)
    # All footprints are in the newest segment, so that all others may be trimmed.
    place = Place(tmp_path / "log", case, Continuous(u=0), cache=tmp_path / "cache")
    stopped_in = 4
    with Worker(serve, place) as zombie:
        for batch in range(stopped_in):
            assert isinstance(zombie.ask(Run(batch, case.batches[batch])), BatchReport)
        zombie.send(Run(stopped_in, case.batches[stopped_in], stop_at=step))
        zombie.wait_until_stopped()
        bucket = place.bucket()
        for batch in range(stopped_in, stopped_in + _GOES_ON):
            report = bucket.run(batch, case.batches[batch])
            if report.recovery is not None and step != "input":
                assert report.recovery.why == "the cache is in use by another process"
        logs = place.logs()
        if after != "nothing":
            logs.output(0).merge(stopped_in + 3)
            logs.input(0).merge(stopped_in + 3)
        if after == "merge and trim":
            logs.input(0).trim(stopped_in + 4)
            logs.output(0).trim(stopped_in + 4)
        zombie.go_on()
        answer = zombie.receive()
        if after == "merge and trim":
            assert isinstance(answer, BatchReport | BatchGoesBackward), answer
        else:
            assert isinstance(answer, BatchReport), answer
            assert answer.was_logged or step == "commit"
            _assert_answer(case.oracle(), case.batches, answer)
        # It is not told that it was away: the next batch is in the log as well.
        again = zombie.ask(Run(stopped_in + 1, case.batches[stopped_in + 1]))
        if after != "merge and trim":
            assert isinstance(again, BatchReport)
            assert again.was_logged
        for batch in range(stopped_in + _GOES_ON, len(batches)):
            # By turns, whoever has the state and whoever has not.
            answer = (
                zombie.ask(Run(batch, case.batches[batch], keep=False))
                if batch % 2
                else bucket.run(batch, case.batches[batch])
            )
            assert isinstance(answer, BatchReport), answer
            assert not answer.was_logged
        bucket.close()
    if after != "merge and trim":
        oracle = assert_logs_are_right(place, case.batches)[0]
    else:
        oracle = _assert_end_is_right(place)
    assert_state_is_right(place, 0, oracle, len(batches) - 1)


def _assert_answer(oracle: Oracle, batches: Sequence[pa.RecordBatch], answer: BatchReport) -> None:
    expected: list[dict[str, Any]] = []
    for batch in range(answer.batch + 1):
        expected = oracle.process(batch, plain_rows(batches[batch])).results
    assert_same_rows(answer.results, oracle.published(expected), f"batch {answer.batch}")


def _assert_end_is_right(place: Place) -> Oracle:
    """What is left of the logs is whole and has the oracle's results."""
    oracle = place.case.oracle()
    log = place.logs().output(0)
    assert log.verify().is_whole, log.verify().problems
    assert place.logs().input(0).verify().is_whole
    for batch, rows in enumerate(place.case.batches):
        expected = oracle.process(batch, plain_rows(rows)).results
        if log.contains(batch):
            assert_same_rows(logged_results(log.read(batch)), expected, f"batch {batch}")
    return oracle


def test_a_process_killed_while_it_is_stopped_gives_the_cache_back(tmp_path: Path) -> None:
    case = count_case([[(1, 1)], [(1, 2)], [(1, 3)], [(2, 4)]])
    place = Place(tmp_path / "log", case, Continuous(), cache=tmp_path / "cache")
    with Worker(serve, place) as worker:
        worker.ask(Run(0, case.batches[0]))
        worker.send(Run(1, orders([(1, 2)]), stop_at="choose"))
        worker.wait_until_stopped()
        worker.kill()
    bucket = place.bucket()
    report = bucket.run(1, case.batches[1])
    assert report.recovery is not None
    assert report.recovery.why == "no whole table in the cache"
    bucket.run(2, case.batches[2])
    bucket.close()
    bucket = place.bucket()
    assert bucket.run(3, case.batches[3]).recovery is None
    bucket.close()
    assert_logs_are_right(place, case.batches)
