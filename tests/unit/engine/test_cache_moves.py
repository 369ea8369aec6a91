"""A table that outgrows shared memory moves to disk: one recovery, and none after that."""

from __future__ import annotations

import logging
import random
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.followed import Followed
from tests.support.hooked import HookedAggregate
from tests.support.orders import random_timed_orders, time_case
from tests.support.rooms import Rooms, small_rooms, used_bytes
from trailmark.checkpoint.policy import Continuous
from trailmark.engine import BatchReport, Bucket
from trailmark.engine.opening import StateKeeper
from trailmark.state.cache import ABANDONED_AFTER, StateCache

_BATCHES = 7
_ENOUGH = 1 << 30


@pytest.fixture
def rooms() -> Iterator[Rooms]:
    with small_rooms() as rooms:
        yield rooms


@pytest.fixture
def recoveries(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The batches before which a recovery was begun, to an end or not."""
    begun: list[int] = []
    recover = StateKeeper._recover

    def counted(keeper: StateKeeper, state: object, target: int, *rest: object) -> object:
        begun.append(target + 1)
        return recover(keeper, state, target, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(StateKeeper, "_recover", counted)
    return begun


class Moving:
    """A query whose every batch runs in another process, with two places for its table."""

    def __init__(self, tmp_path: Path, rooms: Rooms) -> None:
        self.memory, self.disk = tmp_path / "memory", tmp_path / "disk"
        self.rooms = rooms
        rng = random.Random(3)
        batches = random_timed_orders(
            rng, batches=_BATCHES, rows=250, items=400, step_us=30_000_000
        )
        case = time_case(batches, size=4_000_000, slide=2_000_000, delay=100_000_000)
        self.run = Followed(case, Continuous(q=5_000), cache_root=self.memory)
        self.run.query.spill_roots = (self.disk,)
        self.allow()

    def allow(self, *, memory: int = _ENOUGH, disk: int = _ENOUGH) -> None:
        self.rooms.limits = {self.memory: memory, self.disk: disk}

    def step(self) -> BatchReport:
        (report,) = self.run.step()
        self.run.query.stop()
        return report

    def outgrow_memory(self) -> BatchReport:
        """The next batch, for which there is no room in memory."""
        shutil.rmtree(self.memory)
        self.allow(memory=8192)
        return self.step()

    def place(self) -> str:
        """Where there is a whole table."""
        return " and ".join(
            root.name for root in (self.memory, self.disk) if list(root.glob("*/*/token"))
        )


@pytest.fixture
def moving(tmp_path: Path, rooms: Rooms) -> Moving:
    return Moving(tmp_path, rooms)


def _sizes(tmp_path: Path, rooms: Rooms) -> list[int]:
    """From room for nothing to room for all."""
    whole = Moving(tmp_path / "measured", rooms)
    for _ in range(_BATCHES):
        whole.step()
    return [*range(0, used_bytes(whole.memory), 56 << 10), used_bytes(whole.memory) + 4096]


def test_with_a_cache_of_any_size_a_table_is_recovered_once_for_every_move(
    tmp_path: Path, rooms: Rooms, recoveries: list[int], caplog: pytest.LogCaptureFixture
) -> None:
    places_seen = set()
    for size in _sizes(tmp_path, rooms):
        moving = Moving(tmp_path / str(size), rooms)
        moving.allow(memory=size)
        recoveries.clear()
        caplog.clear()
        with caplog.at_level(logging.WARNING, logger="trailmark"):
            places = [(moving.step(), moving.place())[1] for _ in range(_BATCHES)]
        moves = [batch for batch in range(1, _BATCHES) if places[batch] != places[batch - 1]]
        assert recoveries == moves, f"{size} bytes"
        assert sorted(places, reverse=True) == places, "once on disk it stays there"
        warnings = [record.getMessage() for record in caplog.records]
        assert len(warnings) == (places[-1] == "disk"), "said once"
        if warnings:
            assert f"bucket 0 keeps its state in {moving.disk} from now on" in warnings[0]
            assert f"bytes of operator state in {moving.memory}" in warnings[0]
            assert "--shm-size" in warnings[0]
        places_seen.add(tuple(places))
    assert len(places_seen) > 3, "it moved in several batches, in the first, and never"


def test_where_neither_place_has_room_every_batch_recovers_once(
    tmp_path: Path,
    rooms: Rooms,
    recoveries: list[int],
    caplog: pytest.LogCaptureFixture,
) -> None:
    sizes = _sizes(tmp_path, rooms)
    for memory, disk in [(0, 0), (sizes[2], sizes[3]), (sizes[5], sizes[2]), (sizes[3], sizes[-3])]:
        moving = Moving(tmp_path / f"{memory} {disk}", rooms)
        moving.allow(memory=memory, disk=disk)
        caplog.clear()
        with caplog.at_level(logging.WARNING, logger="trailmark"):
            for batch in range(_BATCHES):
                recoveries.clear()
                report = moving.step()
                moves = sum(record.getMessage().count("bucket 0") for record in caplog.records)
                assert len(recoveries) <= 1 + moves, f"batch {batch}"
                caplog.clear()
        assert report.recovery is not None
        assert report.recovery.why == "there is no room in the cache"
        assert recoveries == [_BATCHES - 1]
        assert moves == 0, "it was said before"


def test_a_table_moves_there_and_back_and_is_current_in_one_place_only(moving: Moving) -> None:
    assert moving.step().recovery is None
    assert moving.place() == "memory"
    kept = moving.memory.with_name("kept")
    shutil.copytree(moving.memory, kept)
    assert moving.outgrow_memory().recovery is not None
    assert moving.place() == "disk"
    # Somebody brings the table back that was in memory then: its token is whole, and outdated.
    shutil.rmtree(moving.memory)
    kept.rename(moving.memory)
    assert moving.place() == "memory and disk"
    assert moving.step().recovery is None, "the one on disk is current"
    on_disk = moving.disk.with_name("on disk")
    shutil.copytree(moving.disk, on_disk)
    # The disk is lost, and there is room in memory again.
    shutil.rmtree(moving.disk)
    moving.allow()
    report = moving.step()
    assert report.recovery is None
    assert report.caught_up is not None, "the one in memory was outdated"
    assert moving.place() == "memory"
    on_disk.rename(moving.disk)
    assert moving.place() == "memory and disk"
    assert moving.step().recovery is None, "now the one in memory is current"
    shutil.rmtree(moving.memory)
    assert moving.step().recovery is not None, "and the one on disk is outdated"
    assert moving.place() == "memory"
    assert moving.step().recovery is None


def test_a_table_that_has_to_be_built_anew_goes_back_where_there_is_room_again(
    moving: Moving, recoveries: list[int]
) -> None:
    moving.step()
    moving.outgrow_memory()
    shutil.rmtree(moving.disk)
    moving.step()
    assert moving.place() == "disk", "a quarter more than nothing is still nothing"
    assert recoveries == [1, 2]
    moving.allow()
    moving.step()
    assert moving.place() == "disk", "a table that is current stays where it is"
    shutil.rmtree(moving.disk)
    moving.step()
    assert moving.place() == "memory"
    assert recoveries == [1, 2, 4]


def test_a_process_that_meets_another_in_one_place_does_not_take_the_other(moving: Moving) -> None:
    moving.step()
    holder = StateCache(moving.memory).acquire(moving.run.query.logs().log_id, 0).cached
    assert holder is not None
    report = moving.step()
    assert report.recovery is not None
    assert report.recovery.why == "the cache is in use by another process"
    assert not moving.disk.exists()
    holder.close()


def test_whoever_is_overtaken_while_it_moves_leaves_no_table_that_is_believed(
    moving: Moving,
) -> None:
    """One process has no room half way; meanwhile another does the batch where there is some."""
    moving.step()
    shutil.rmtree(moving.memory)
    moving.allow(memory=8192)
    query, run = moving.run.query, moving.run

    def overtake() -> None:
        assert used_bytes(moving.disk) > 8192, "the slow one builds its table on disk"
        moving.allow()
        shutil.rmtree(moving.memory)
        other = Bucket(query.case.operator(), query.logs(), 0, query.policy, cache, query.clock)
        other.run(1, run.parts(1)[0])
        other.close()

    cache = StateCache(moving.memory, moving.disk)
    slow = Bucket(
        HookedAggregate(run.case, before=overtake),
        query.logs(),
        0,
        query.policy,
        cache,
        query.clock,
    )
    assert slow.run(1, run.parts(1)[0]).was_logged
    slow.close()
    assert moving.place() == ""
    assert moving.step().was_logged, "for the oracle to know"
    assert moving.step().recovery is not None
    assert moving.step().recovery is None


def test_tables_that_nobody_uses_are_swept_from_both_places(moving: Moving) -> None:
    moving.step()
    moving.outgrow_memory()
    cache = StateCache(moving.memory, moving.disk)
    (note,) = moving.memory.rglob("full")
    (token,) = moving.disk.rglob("token")
    written_us = note.parent.stat().st_mtime * 1e6
    steady_us = moving.run.query.clock()
    an_hour_us = (ABANDONED_AFTER + 60) * 1e6
    assert cache.sweep(written_us + an_hour_us, steady_us) == [note.parent]
    assert cache.sweep(written_us, steady_us + an_hour_us) == [token.parent]
