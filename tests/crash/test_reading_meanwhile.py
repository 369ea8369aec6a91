"""Logs that are read, and recovered from, while others write, merge and trim them."""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.compare import assert_same_rows, assert_same_states
from tests.support.hooked import HookedAggregate
from tests.support.logs import fill, open_log
from tests.support.orders import count_case, random_orders
from tests.support.plain import plain_rows
from tests.support.processes import Pipe, Place, Worker
from tests.support.verdict import assert_logs_are_right, logged_results, recovered_states
from trailmark.checkpoint.policy import Continuous, NoCheckpoint
from trailmark.errors import MissingInput, TrailmarkError
from trailmark.log import StreamLog
from trailmark.log.storage.file_system import DirectoryEntry
from trailmark.settings import LogSettings
from trailmark.testing.disk import SimulatedDisk

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
