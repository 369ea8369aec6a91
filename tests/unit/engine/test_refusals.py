"""Batches and logs that do not fit: refused by name, with what to do next, and nothing changed."""

from __future__ import annotations

import pickle
import random
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest

from tests.support.cases import Case
from tests.support.compare import assert_same_rows
from tests.support.followed import Followed
from tests.support.orders import (
    SCHEMA,
    count_case,
    orders,
    random_orders,
    random_timed_orders,
    time_case,
    timed_orders,
)
from tests.support.plain import plain_rows
from trailmark.checkpoint.policy import Continuous, NoCheckpoint, Policy
from trailmark.engine import Bucket, OperatorLogs
from trailmark.errors import (
    BatchGoesBackward,
    BatchSkipped,
    InputDiffers,
    OtherQuery,
    SchemaChanged,
    TrailmarkError,
    UnsupportedType,
)
from trailmark.operators.aggregate import Aggregate
from trailmark.testing.disk import SimulatedDisk
from trailmark.testing.processes import StepClock
from trailmark.windows import functions as f
from trailmark.windows.spec import CountWindow, count_window, time_window


def _bucket(
    disk: SimulatedDisk,
    case: Case,
    policy: Policy | None = None,
    *,
    buckets: int = 1,
    query_id: str | None = "query",
    first_batch: int = 0,
) -> Bucket:
    operator = case.operator()
    logs = OperatorLogs(
        disk.storage(), operator, buckets=buckets, query_id=query_id, first_batch=first_batch
    )
    return Bucket(operator, logs, 0, policy or Continuous(), None, StepClock())


def _content(disk: SimulatedDisk) -> dict[str, bytes]:
    return {path: disk.content(path) for path in disk.files()}


def _assert_says_all(error: TrailmarkError) -> None:
    assert error.what
    assert error.where
    assert error.fix


# The order of batches


@pytest.fixture
def run() -> Followed:
    """Has done batches 0 to 5 of 8; the newest output segment has all footprints."""
    batches = random_orders(random.Random(1), batches=8, rows=20, items=9)
    run = Followed(count_case(batches), Continuous(u=0))
    run.run(6)
    return run


@pytest.mark.parametrize("is_restarted", [False, True])
@pytest.mark.parametrize("batch", [7, 8, 1_000_000])
def test_a_batch_that_skips_others_is_refused_and_names_the_missing_one(
    run: Followed, batch: int, is_restarted: bool
) -> None:
    if is_restarted:
        run.query.stop()
    before = _content(run.disk)
    (bucket,) = run.query.open()
    with pytest.raises(BatchSkipped, match="batches up to 5, so batch 6 is missing") as refused:
        bucket.run(batch, orders([(1, 1)]))
    _assert_says_all(refused.value)
    assert refused.value.where == "out/00000"
    assert _content(run.disk) == before
    run.run()


def test_a_log_that_has_no_batch_yet_refuses_all_but_the_first() -> None:
    disk = SimulatedDisk()
    case = count_case([[(1, 1)]])
    bucket = _bucket(disk, case)
    with pytest.raises(BatchSkipped, match="holds no batch yet, so batch 0 is missing"):
        bucket.run(3, case.batches[0])
    assert not bucket.run(0, case.batches[0]).was_logged


@pytest.mark.parametrize("is_restarted", [False, True])
def test_a_batch_that_was_trimmed_from_both_logs_goes_backward(
    run: Followed, is_restarted: bool
) -> None:
    logs = run.query.logs()
    logs.input(0).trim(4)
    logs.output(0).trim(4)
    if is_restarted:
        run.query.stop()
    operations = run.disk.operations
    for batch in (0, 2, 3):
        with pytest.raises(BatchGoesBackward) as refused:
            run.query.run(batch, run.parts(batch))
        _assert_says_all(refused.value)
        assert f"Batch {batch} " in refused.value.what
    run.query.stop()
    assert run.disk.operations == operations, "nothing is tried that would have to be taken back"
    run.run()


def test_a_batch_whose_input_alone_is_left_goes_backward(run: Followed) -> None:
    run.query.logs().output(0).trim(4)
    with pytest.raises(BatchGoesBackward, match="batches up to 5"):
        run.query.run(2, run.parts(2))
    run.run()


def test_a_batch_before_the_first_of_the_log_goes_backward() -> None:
    disk = SimulatedDisk()
    case = count_case([[(1, 1)]])
    bucket = _bucket(disk, case, first_batch=40)
    for batch in (39, 0, -1):
        with pytest.raises(BatchGoesBackward, match="begins with batch 40"):
            bucket.run(batch, case.batches[0])


@pytest.mark.parametrize("policy", [Continuous(u=20), NoCheckpoint()], ids=str)
@pytest.mark.parametrize("kind", ["count", "time"])
def test_a_log_may_begin_with_any_batch(policy: Policy, kind: str) -> None:
    rng = random.Random(2)
    case = (
        count_case(random_orders(rng, batches=20, rows=12, items=6), size=4)
        if kind == "count"
        else time_case(random_timed_orders(rng, batches=20, rows=12, items=3))
    )
    reference = Followed(case, policy)
    disk = SimulatedDisk()
    for number, (expected,) in enumerate(reference.steps()):
        # Given once, the first batch stands; later openings need not know it.
        bucket = _bucket(disk, case, policy, first_batch=1_000 if number == 0 else 0)
        found = bucket.run(1_000 + number, case.batches[number])
        assert_same_rows(found.results, plain_rows(expected.results), f"batch {number}")
        assert found.account.open_windows == expected.account.open_windows
        assert found.account.replay == expected.account.replay
        assert found.account.needs == 1_000 + expected.account.needs
    assert bucket.run(1_000, case.batches[0]).was_logged


# The rows of a batch


@pytest.mark.parametrize(
    "rows",
    [[], [(1, 5)], [(1, 5), (2, 7)], [(1, 5), (2, 6), (2, 6)], [(2, 5), (1, 6)]],
    ids=["none", "fewer", "another value", "more", "swapped"],
)
@pytest.mark.parametrize("is_restarted", [False, True])
def test_the_same_batch_with_other_rows_is_refused(
    rows: list[tuple[int, int]], is_restarted: bool
) -> None:
    run = Followed(count_case([[(1, 5), (2, 6)], [(3, 1)]]), Continuous())
    run.run(1)
    if is_restarted:
        run.query.stop()
    before = _content(run.disk)
    with pytest.raises(InputDiffers, match="in the log with other rows") as refused:
        run.query.run(0, [orders(rows)])
    _assert_says_all(refused.value)
    assert f"(2 then, {len(rows)} now)" in refused.value.what
    assert _content(run.disk) == before
    run.run()


@pytest.mark.parametrize(("rows", "helps"), [([(1, 5)], True), ([(1, 5), (2, 6), (3, 7)], False)])
def test_whoever_brings_fewer_rows_is_told_how_to_go_on_without_the_others(
    rows: list[tuple[int, int]], helps: bool
) -> None:
    run = Followed(count_case([[(3, 1)], [(1, 5), (2, 6)]]), Continuous())
    run.run(2)
    with pytest.raises(InputDiffers) as refused:
        run.query.run(1, [orders(rows)])
    assert ("trailmark truncate --to-batch 0" in refused.value.fix) is helps


def test_other_rows_for_a_batch_whose_input_alone_was_published_are_refused() -> None:
    case = count_case([[(1, 5), (2, 6)], [(3, 1)]])
    run = Followed(case, Continuous())
    run.run(1)
    run.query.logs().storage.delete("out/00000/00000000000000000000.seg")
    run.query.stop()
    with pytest.raises(InputDiffers) as refused:
        run.query.run(0, [orders([(1, 5)])])
    assert refused.value.where.startswith("in/00000/")
    (report,) = run.query.run(0, run.parts(0))
    assert not report.was_logged


def test_the_same_rows_in_another_order_are_the_same_batch() -> None:
    rows = [(item, price) for item in range(5) for price in range(3)]
    run = Followed(count_case([rows], size=4), Continuous())
    run.run()
    random.Random(1).shuffle(rows)
    (report,) = run.query.run(0, [orders(rows)])
    assert report.was_logged


@pytest.mark.parametrize(
    ("rows", "says"),
    [
        ({"item": pa.array([1], pa.int32())}, "Column 'price' is missing"),
        (
            {"item": pa.array([1], pa.int64()), "price": pa.array([1], pa.int64())},
            "Column 'item' is int64; the operator was made for int32",
        ),
        (
            {"item": pa.array([1], pa.int32()), "price": pa.array([1.0])},
            "Column 'price' is double; the operator was made for int64",
        ),
        (
            {"item": pa.array(["1"]), "price": pa.array([1], pa.int64())},
            "Column 'item' is string; the operator was made for int32",
        ),
    ],
    ids=["missing", "wider", "floating", "text"],
)
@pytest.mark.parametrize("form", [pa.Table, pa.RecordBatch])
def test_a_missing_or_wrongly_typed_column_is_refused_by_name(
    rows: dict[str, pa.Array], says: str, form: Any
) -> None:
    disk = SimulatedDisk()
    bucket = _bucket(disk, count_case([[(1, 1)]]))
    before = _content(disk)
    with pytest.raises(SchemaChanged) as refused:
        bucket.run(0, form.from_pydict(rows))
    assert says in refused.value.what
    assert refused.value.where == "input of bucket 0"
    assert refused.value.fix
    assert _content(disk) == before
    assert not bucket.run(0, orders([(1, 1)])).was_logged


def test_columns_that_are_not_needed_and_their_order_do_not_matter() -> None:
    run = Followed(count_case([[(1, 5), (1, 6)]], size=2), Continuous())
    rows = run.case.batches[0]
    given = pa.table(
        {"note": ["a", "b"], "price": rows.column("price"), "item": rows.column("item")}
    )
    (bucket,) = run.query.open()
    report = bucket.run(0, given)
    assert report.results.to_pylist() == [{"item": 1, "total": 11, "number": 2, "last": 6}]
    assert run.query.logs().input(0).read(0).table(1).schema.names == ["item", "price"]  # type: ignore[arg-type, union-attr]


def test_a_table_of_several_chunks_is_one_batch() -> None:
    run = Followed(count_case([[(1, 5), (1, 6), (2, 7)]], size=2), Continuous())
    chunks = [run.case.batches[0].slice(0, 1), run.case.batches[0].slice(1)]
    (bucket,) = run.query.open()
    report = bucket.run(0, pa.Table.from_batches(chunks))
    assert report.results.num_rows == 1
    run.step()  # the same rows in one piece: the same batch


# Logs of something else


def _aggregate(**other: Any) -> Aggregate:
    given: dict[str, Any] = {
        "by": ["item"],
        "window": CountWindow(10, 10),
        "values": {"total": f.sum("price")},
        **other,
    }
    schema = given.pop("schema", SCHEMA)
    return Aggregate(schema, **given)


def _open(disk: SimulatedDisk, operator: Aggregate, **options: Any) -> OperatorLogs:
    return OperatorLogs(disk.storage(), operator, **{"buckets": 2, "query_id": "a", **options})


@pytest.mark.parametrize(
    ("other", "says"),
    [
        ({"window": count_window(11)}, "operator.window.size: 10 -> 11"),
        ({"window": count_window(10, slide=5)}, "operator.window.slide: 10 -> 5"),
        ({"values": {"total": f.avg("price")}}, "sum -> avg"),
        ({"values": {"sum": f.sum("price")}}, "operator.values.sum: absent"),
        ({"values": {"total": f.sum("price", overflow="null")}}, "error -> null"),
        ({"by": ["price"], "values": {"total": f.sum("item")}}, "operator.by"),
        ({"late": "keep"}, "operator.late: drop -> keep"),
        (
            {"schema": pa.schema([("item", pa.int64()), ("price", pa.int64())])},
            "input column item: int32 -> int64",
        ),
    ],
    ids=["size", "slide", "function", "name", "overflow", "key", "late", "schema"],
)
def test_the_log_of_another_operator_is_refused_with_the_difference(
    other: dict[str, Any], says: str
) -> None:
    disk = SimulatedDisk()
    _open(disk, _aggregate())
    before = _content(disk)
    with pytest.raises(SchemaChanged) as refused:
        _open(disk, _aggregate(**other))
    assert says in refused.value.what
    _assert_says_all(refused.value)
    assert _content(disk) == before
    _open(disk, _aggregate())


def test_another_kind_of_window_is_another_operator() -> None:
    disk = SimulatedDisk()
    case = time_case([[("a", 1, 0)]])
    _open(disk, case.operator())
    counted = Aggregate(
        case.schema, by=["item"], window=count_window(3), values={"total": f.sum("price")}
    )
    with pytest.raises(SchemaChanged, match=r"operator\.window\.kind: time -> count"):
        _open(disk, counted)


def test_other_buckets_are_refused() -> None:
    disk = SimulatedDisk()
    _open(disk, _aggregate())
    with pytest.raises(SchemaChanged, match="buckets: 2 -> 3"):
        _open(disk, _aggregate(), buckets=3)


def test_the_log_of_another_query_is_refused() -> None:
    disk = SimulatedDisk()
    _open(disk, _aggregate())
    with pytest.raises(OtherQuery, match="a -> b") as refused:
        _open(disk, _aggregate(), query_id="b")
    _assert_says_all(refused.value)


def test_whoever_names_no_query_may_open_the_log_of_any() -> None:
    disk = SimulatedDisk()
    first = _open(disk, _aggregate())
    assert _open(disk, _aggregate(), query_id=None).log_id == first.log_id


def test_all_who_open_the_same_logs_see_the_same_identity() -> None:
    disk = SimulatedDisk()
    logs: Sequence[OperatorLogs] = [_open(disk, _aggregate(), first_batch=n) for n in (7, 8, 9)]
    assert {each.log_id for each in logs} == {logs[0].log_id}
    assert {each.first_batch for each in logs} == {7}


def test_time_windows_without_a_timestamp_are_refused() -> None:
    with pytest.raises(UnsupportedType, match="'price' is int64"):
        _aggregate(window=time_window("price", "1 minute"))


def test_errors_keep_their_words_across_processes() -> None:
    run = Followed(time_case([[("a", 1, 0)]]), Continuous())
    with pytest.raises(BatchSkipped) as refused:
        run.query.run(5, [timed_orders([("a", 1, 0)])])
    again = pickle.loads(pickle.dumps(refused.value))  # noqa: S301 - our own bytes
    assert (type(again), str(again)) == (BatchSkipped, str(refused.value))
    assert (again.what, again.where, again.fix) == (
        refused.value.what,
        refused.value.where,
        refused.value.fix,
    )
