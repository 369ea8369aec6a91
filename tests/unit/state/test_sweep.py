"""Tables that nobody uses are removed from the cache; those in use are not."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from trailmark.records import SegmentLink
from trailmark.state.cache import StateCache, Token, boot_id


def _make(cache: StateCache, log: str, bucket: int, age: float) -> Path:
    held = cache.acquire(log, bucket).cached
    assert held is not None
    held.memory(is_new=True).region("slots", 4096)
    os.utime(held.directory, (1e9 - age, 1e9 - age))
    held.close()
    return held.directory


@pytest.fixture
def cache(tmp_path: Path) -> StateCache:
    return StateCache(tmp_path / "cache")


def test_old_tables_go_and_young_ones_stay(cache: StateCache) -> None:
    old, young = _make(cache, "a", 0, 4000), _make(cache, "b", 1, 3000)
    assert cache.sweep(1e15, 0.0) == [old]
    assert not old.parent.exists()
    assert [file.name for file in young.iterdir()] == ["slots"]


def test_a_table_in_use_stays_however_old_it_is(cache: StateCache) -> None:
    old = _make(cache, "a", 0, 4000)
    held = cache.acquire("a", 0).cached
    assert held is not None
    os.utime(held.directory, (1e9 - 4000, 1e9 - 4000))
    assert cache.sweep(1e15, 0.0) == []
    assert old.exists()
    held.close()
    os.utime(old, (1e9 - 4000, 1e9 - 4000))
    assert cache.sweep(1e15, 0.0) == [old]


def test_a_table_that_no_log_stands_behind_stays_for_a_week(cache: StateCache) -> None:
    """Its query may be waiting for rows."""
    week = 7 * 86_400
    old, young = (_make(cache, f"unlogged-{age}", 0, age) for age in (week + 100, week - 100))
    assert cache.sweep(1e15, 0.0) == [old]
    assert young.exists()


def test_a_cache_that_is_not_there_is_swept_in_peace(cache: StateCache) -> None:
    assert cache.sweep(1e15, 0.0) == []


def test_a_table_from_the_future_is_as_old_as_its_directory(cache: StateCache) -> None:
    directories = [_make(cache, "a", bucket, 4000) for bucket in (0, 1)]
    for directory, ended_us in zip(directories, (1e15, 5e9), strict=True):
        token = Token(boot_id(), "a", 0, SegmentLink(3, 9), "", {}, ended_us=ended_us)
        (directory / "token").write_text(token.to_json())
        os.utime(directory, (1e9 - 4000, 1e9 - 4000))
    assert cache.sweep(1e15, 6e9) == directories[:1], "the other was used a thousand seconds ago"
