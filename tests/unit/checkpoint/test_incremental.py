"""`Incremental`: which groups are written, when, and for whom it is."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from tests.support.barriers import small_barrier
from tests.support.engine import CrashCase, Query
from tests.support.grouping import GroupedCase
from tests.support.joining import port_rows, small_join, small_windows
from tests.support.orders import count_case
from tests.support.plain import plain_rows
from trailmark.checkpoint.policy import (
    Continuous,
    CostBenefit,
    Delta,
    FullSnapshot,
    Incremental,
    NoCheckpoint,
    Policy,
    SlowWindows,
    UpstreamBackup,
)
from trailmark.checkpoint.wording import ROUND
from trailmark.errors import SettingError
from trailmark.kernel.columns import contiguous
from trailmark.records import OPENED, FrameKind
from trailmark.testing.disk import SimulatedDisk
from trailmark.windows.last_tuples import LastTuples

_SCHEMAS = tuple(pa.schema([("key", pa.int64()), (name, pa.int64())]) for name in ("name", "asked"))


def _case(
    batches: Sequence[Sequence[int]], window: LastTuples, group_size: int, how: str = "inner"
) -> GroupedCase:
    """Left tuples with these keys, numbered from 0 on; nothing waits on the right side."""
    rows, number = [], 0
    for keys in batches:
        placed = [(0, [key, number + place]) for place, key in enumerate(keys)]
        rows.append(port_rows(_SCHEMAS, placed))
        number += len(keys)
    left, right = _SCHEMAS
    windows = (window, LastTuples(0))
    return GroupedCase(
        (left, right), ("key",), None, how, tuple(rows), windows=windows, group_size=group_size
    )


def _query(case: GroupedCase, every: int) -> Query:
    assert case.group_size is not None
    return Query(case, SimulatedDisk(), Incremental(every, case.group_size))


def _written(query: Query, batch: int) -> list[list[int]]:
    """The tuples in each group that a batch has written, oldest group first."""
    table = query.logs().output(0).read(batch).table(FrameKind.FOOTPRINTS)
    rows = [] if table is None else plain_rows(contiguous(table))
    rows.sort(key=lambda row: (row[OPENED], row["first"]))
    return [[held["name"] for held in row["left"]] for row in rows]


def _groups(query: Query) -> list[dict[str, Any]]:
    """All groups of the left side, as they are now."""
    (bucket,) = query.open()
    return _shown(query, bucket.state())


def _shown(query: Query, state: object) -> list[dict[str, Any]]:
    rows = plain_rows(query.case.operator().content(state))
    return sorted(rows, key=lambda row: (row[OPENED], row["first"]))


def _recovered(query: Query, batch: int) -> list[list[int]]:
    """The tuples of all groups as they are before a batch, for another process."""
    query.stop()
    query.disk.kill()
    (bucket,) = query.open()
    state, report, _ = bucket._keeper.open(batch)
    assert report is not None
    found = [[held["name"] for held in row["left"]] for row in _shown(query, state.pieces)]
    query.stop()
    return found


def test_the_example_of_the_paper() -> None:
    """A window of 15 tuples in groups of 5: 13 have come at the first checkpoint, 5 more at the
    second, and the first three of them have left by then."""
    case = _case([[0] * 13, [0] * 5], LastTuples(15), 5)
    query = _query(case, 1)
    query.run(0, [case.batches[0]])
    assert _written(query, 0) == [[0, 1, 2, 3, 4], [5, 6, 7, 8, 9], [10, 11, 12]]
    query.run(1, [case.batches[1]])
    changed = [[10, 11, 12, 13, 14], [15, 16, 17]]
    assert _written(query, 1) == changed
    assert _recovered(query, 2) == [[3, 4], [5, 6, 7, 8, 9], *changed]


def test_what_has_only_left_is_dropped_after_a_recovery_and_not_written() -> None:
    batches = [[0] * 40, *[[0]] * 3]
    case = _case(batches, LastTuples(40), 10)
    query = _query(case, 1)
    for batch, rows in enumerate(case.batches):
        query.run(batch, [rows])
    assert [len(_written(query, batch)) for batch in range(4)] == [4, 1, 1, 1]
    assert [name for names in _recovered(query, 4) for name in names] == list(range(3, 43))


def test_a_group_that_has_got_nothing_is_written_once_in_a_round_and_the_log_stays_short() -> None:
    """One key is quiet from the second batch on, another one is not."""
    batches = [[0] * 8 + [1] * 8, *[[1] * 4] * (3 * ROUND)]
    case = _case(batches, LastTuples(8, per_key=True), 8)
    query = _query(case, 1)
    quiet = 0
    for batch, rows in enumerate(case.batches):
        query.run(batch, [rows])
        (bucket,) = query.open()
        bucket.trim(acknowledged=batch)
        quiet += any(0 in tuples for tuples in _written(query, batch))
    # There are three groups, and in a round as many are written though they have not changed.
    assert 3 <= quiet <= 1 + 3 * 3
    assert len(query.logs().output(0).batches()) <= 2 * ROUND
    query.stop()


def test_groups_of_quiet_keys_are_smaller() -> None:
    """The busiest key has 300 tuples in a batch, others 20 and 1."""
    keys = [0] * 300 + [1] * 20 + [2]
    random.Random(0).shuffle(keys)
    case = _case([keys, keys], LastTuples(1024, per_key=True), 256)
    query = _query(case, 1)
    for batch, rows in enumerate(case.batches):
        query.run(batch, [rows])
    sizes = {(row["left"][0]["key"], row["size"]) for row in _groups(query)}
    assert sizes == {(0, 256), (1, 32), (2, 16)}
    query.stop()


@pytest.mark.parametrize("per_key", [False, True])
@pytest.mark.parametrize(("window", "size"), [(12, 3), (12, 12), (12, 5), (12, 50), (12, 1)])
def test_a_ring_has_no_more_positions_than_the_window_has_groups_and_one(
    window: int, size: int, per_key: bool
) -> None:
    rng = random.Random(size)
    batches = [[rng.randrange(2)] * rng.choice((0, 1, 5, 13)) for _ in range(40)]
    case = _case(batches, LastTuples(window, per_key=per_key), size)
    query = _query(case, 2)
    least = max(1, min(size, window) // 16) if per_key else min(size, window)
    most = -(-(window - 1) // least) + 1
    for batch, rows in enumerate(case.batches):
        query.run(batch, [rows])
        rings = Counter(row["left"][0]["key"] if per_key else 0 for row in _groups(query))
        assert max(rings.values(), default=0) <= most
    query.stop()


@pytest.mark.parametrize(
    "policy",
    [Continuous(q=5), Continuous.within("1 second"), CostBenefit(1), SlowWindows("1 s", "1 s")],
    ids=lambda policy: type(policy).__name__,
)
def test_who_brings_windows_up_to_date_one_by_one_is_not_for_groups(policy: Policy) -> None:
    case = _case([[0]], LastTuples(4), 2)
    with pytest.raises(SettingError, match="Groups of tuples cannot be") as error:
        Query(case, SimulatedDisk(), policy).open()
    assert type(policy).__name__ in str(error.value)
    assert "tm.Incremental" in str(error.value)


@pytest.mark.parametrize(
    "policy",
    [NoCheckpoint(), UpstreamBackup(), Delta(2), FullSnapshot(2), FullSnapshot(2, True)],
    ids=str,
)
def test_all_others_are(policy: Policy) -> None:
    case = _case([[0, 1, 0], [0], [1, 1]], LastTuples(2, per_key=True), 2)
    query = Query(case, SimulatedDisk(), policy)
    for batch, rows in enumerate(case.batches):
        query.run(batch, [rows])
        query.stop()
    assert sorted(name for names in _recovered(query, 3) for name in names) == [2, 3, 4, 5]


@pytest.mark.parametrize(
    "case",
    [count_case([[]]), small_barrier(), small_windows(), small_join()],
    ids=["aggregate", "barrier", "last tuples", "join"],
)
def test_it_is_for_nothing_but_groups(case: CrashCase) -> None:
    with pytest.raises(SettingError, match="not cut into groups") as error:
        Query(case, SimulatedDisk(), Incremental(1)).open()
    assert "tm.Delta(every)" in str(error.value)


def test_it_is_for_groups_of_its_own_size() -> None:
    case = _case([[0]], LastTuples(4), 2)
    with pytest.raises(SettingError, match=r"groups of 2 tuples.*group_size of 3"):
        Query(case, SimulatedDisk(), Incremental(1, 3)).open()


def test_groups_of_what_waits_by_time_are_refused() -> None:
    with pytest.raises(SettingError, match="its tuples wait by time") as error:
        replace(small_join(), group_size=4).operator()
    assert "tm.Delta(every)" in str(error.value)


@pytest.mark.parametrize("size", [0, -1, 1.5, True, "many"])
def test_a_size_is_a_number_of_tuples(size: Any) -> None:
    with pytest.raises(SettingError, match="group_size must be a whole number"):
        Incremental(1, size)


@pytest.mark.parametrize("every", [0, "0 seconds", "sometimes", None])
def test_it_happens_every_so_often(every: Any) -> None:
    with pytest.raises(SettingError):
        Incremental(every)


def test_it_says_what_it_is_and_promises() -> None:
    policy = Incremental("10 seconds", 512)
    assert policy.title() == "incremental (every 10 s, group_size 512)"
    assert policy.promise() == (
        "replays at most 10 seconds of input, and reads the output of at most 10 minutes 40 "
        "seconds of input"
    )
