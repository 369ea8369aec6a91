"""Real processes that write, tend and follow one stream on real files at the same time."""

from __future__ import annotations

from collections import Counter
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.support.processes import Worker
from tests.support.stream_workers import SCHEMA, follow, write_batches
from trailmark.log import LocalStorage
from trailmark.records import NO_BATCH
from trailmark.streams.description import open_stream
from trailmark.streams.manifest import manifest_log
from trailmark.streams.table import read_table

_COUNT = 30
_ROWS = 3


def _race(path: Path, names: list[str], kept: int | None, followers: int = 0) -> tuple[Any, Any]:
    """All at once: the places that each writer's batches got, and what each follower saw."""
    open_stream(LocalStorage(path), SCHEMA)
    with ExitStack() as stack:
        writers = [
            # One query has the same rows wherever it runs.
            stack.enter_context(Worker(write_batches, path, names.index(name), _COUNT, name, kept))  # type: ignore[arg-type]
            for name in names
        ]
        readers = [
            stack.enter_context(Worker(follow, path))  # type: ignore[arg-type]
            for _ in range(followers)
        ]
        for worker in (*writers, *readers):
            worker.send("begin")
        places = [worker.receive() for worker in writers]
        (path / "stop").touch()
        seen = [worker.receive() for worker in readers]
        for worker in (*writers, *readers):
            worker.finish()
    return places, seen


def _whole(path: Path) -> None:
    storage = LocalStorage(path)
    log = manifest_log(storage, open_stream(storage, SCHEMA))
    assert log.verify().problems == []


def test_processes_that_commit_at_once_all_commit_and_each_once(tmp_path: Path) -> None:
    places, (seen,) = _race(tmp_path, ["a", "b", "c"], None, followers=1)
    taken = [place for each in places for place in each]
    assert sorted(taken) == list(range(3 * _COUNT)), "every batch has a place of its own"
    found = Counter((row["writer"], row["number"]) for row in read_table(tmp_path).to_pylist())
    assert found == {(me, number): _ROWS for me in range(3) for number in range(_COUNT)}
    _whole(tmp_path)
    read, gone, at, _ = seen
    assert (gone, at) == ([], 3 * _COUNT)
    for me, each in enumerate(places):
        assert [read[place] for place in each] == [[(me, n)] * _ROWS for n in range(_COUNT)]


def test_a_query_that_runs_twice_commits_every_batch_once(tmp_path: Path) -> None:
    places, _ = _race(tmp_path, ["query", "query"], None)
    taken = [place for each in places for place in each if place != NO_BATCH]
    assert sorted(taken) == list(range(_COUNT))
    found = Counter(row["number"] for row in read_table(tmp_path).to_pylist())
    assert found == dict.fromkeys(range(_COUNT), _ROWS)
    assert len(list((tmp_path / "data" / "00000").iterdir())) == _COUNT, "none is left over"
    _whole(tmp_path)


@pytest.mark.parametrize("kept", [4, 12])
def test_whoever_follows_meets_no_gap_and_no_row_twice_but_what_was_trimmed(
    tmp_path: Path, kept: int
) -> None:
    places, seen = _race(tmp_path, ["a", "b"], kept, followers=2)
    order = {place: (me, n) for me, each in enumerate(places) for n, place in enumerate(each)}
    assert sorted(order) == list(range(2 * _COUNT))
    for read, gone, at, oldest in seen:
        assert at == 2 * _COUNT
        assert sorted([*read, *gone]) == list(range(at))
        assert all(batch < oldest for batch in gone), "only what was trimmed is gone"
        assert read == {batch: [order[batch]] * _ROWS for batch in read}
    assert read_table(tmp_path).num_rows <= _ROWS * (2 * kept + 8)
    _whole(tmp_path)
