"""What `tm.testing.run` takes, and what it refuses."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest

import trailmark as tm
from tests.unit.testing.samples import SCHEMA, counted, sales
from trailmark.errors import SettingError
from trailmark.operators.aggregate import Aggregate
from trailmark.testing import Crash, Query, aggregate, run

_QUERY = counted(tm.sum("price"))
_ROWS = [{"item": 1, "price": 2.5}, {"item": 2, "price": 0.5}, {"item": 1, "price": 1.5}]
_TYPES = pa.schema([("item", pa.int64()), ("price", pa.float64())])


@pytest.mark.parametrize(
    "batch",
    [
        pa.Table.from_pylist(_ROWS),
        pa.RecordBatch.from_pylist(_ROWS),
        _ROWS,
        tuple(_ROWS),
        pd.DataFrame(_ROWS, index=[7, 8, 9]),
    ],
    ids=["table", "record batch", "rows", "tuple", "pandas"],
)
def test_batches_come_in_many_forms(batch: Any) -> None:
    report = run(counted(tm.sum("price"), 2), [batch, _ROWS, []], crash_at=1)
    assert sorted(report.results.column("value").to_pylist()) == [1.0, 4.0, 4.0]
    assert report.results.schema == pa.schema([("item", pa.int64()), ("value", pa.float64())])


def test_types_of_dictionaries_come_from_all_of_them() -> None:
    batches = [[{"item": None, "price": 1}], [{"item": "a", "price": 0.5}], [{"item": "a"}]]
    report = run(counted(tm.sum("price"), 2), batches)
    assert report.results.to_pylist() == [{"item": "a", "value": 0.5}]


def test_pandas_is_not_imported_unless_it_is_given() -> None:
    code = (
        "import sys, pyarrow as pa, trailmark as tm; "
        "q = tm.testing.aggregate(by='k', window=tm.count_window(1), values={'n': tm.count()}); "
        "rows = pa.record_batch([pa.nulls(3, pa.int32())], names=['k']); "  # lists Arrow asks it of
        "assert tm.testing.run(q, [rows, rows], crash_at=1).results.num_rows == 6; "
        "assert not {'pandas', 'pyspark'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize(
    ("batches", "where", "says"),
    [
        ([], "batches", "no batch"),
        (5, "batches", "list of batches"),
        ({"item": [1]}, "batches", "list of batches"),
        ([5], "batches[0]", "is int"),
        ([_ROWS, [1, 2]], "batches[1]", "is list"),
        ([pa.table({"item": [1]}), pa.table({"item": [0.5]})], "batches[1]", "item: double"),
        ([pa.table({"item": [1]}), [{"item": 1, "more": 2}]], "batches[1]", "['more']"),
        ([pa.table({"item": [1]}), [{"item": "x"}]], "batches[1]", "does not fit"),
        ([[{"item": 1}], [{"item": "x"}]], "batches", "different types"),
    ],
)
def test_batches_that_cannot_be_one_stream_are_refused(batches: Any, where: str, says: str) -> None:
    with pytest.raises(SettingError) as caught:
        run(_QUERY, batches)
    assert caught.value.where == where
    assert says in caught.value.what
    assert caught.value.fix


@pytest.mark.parametrize(
    "crash_at",
    ["nowhere", [], 3, -1, True, [1, "x"], 1.5, Crash(1, 500), Crash(9), [0, Crash(2, 500)]],
    ids=repr,
)
def test_crashes_that_cannot_be_are_refused(crash_at: Any) -> None:
    with pytest.raises(SettingError):
        run(_QUERY, sales(), crash_at)


def test_a_crash_that_an_earlier_one_has_made_impossible_is_refused() -> None:
    """The first comes when the output is in the log: then the batch is answered from there."""
    last = run(_QUERY, sales(2)).operations - run(_QUERY, sales(1)).operations - 1
    with pytest.raises(SettingError, match="before its output"):
        run(_QUERY, sales(), [Crash(1, last), 1])


@pytest.mark.parametrize(
    "arguments",
    [(-1,), (None,), (True,), (0, -1), (0, 1.5), (0, True), (0, 1, "fire")],
    ids=repr,
)
def test_a_crash_is_at_a_number_and_of_a_known_kind(arguments: Any) -> None:
    with pytest.raises(SettingError, match="must be"):
        Crash(*arguments)


@pytest.mark.parametrize(
    ("wrong", "where"),
    [
        ({"buckets": 0}, "buckets"),
        ({"buckets": True}, "buckets"),
        ({"seed": "x"}, "seed"),
        ({"checkpoint": 5}, "checkpoint"),
        ({"checkpoint": tm.NoCheckpoint(), "recover_within": "1 s"}, "checkpoint, recover_within"),
        ({"recover_within": "soon"}, "recover_within"),
    ],
    ids=repr,
)
def test_other_arguments_are_refused_by_name(wrong: Any, where: str) -> None:
    with pytest.raises(SettingError) as caught:
        run(_QUERY, sales(), **wrong)
    assert where in (caught.value.where, "recover_within")


def test_only_queries_are_run() -> None:
    with pytest.raises(SettingError, match="operator must say") as caught:
        run(Aggregate, sales())
    assert "tm.testing.aggregate" in caught.value.fix


def test_queries_are_refused_as_on_spark() -> None:
    with pytest.raises(SettingError, match=r"Without keys, .* read no column"):
        run(aggregate(by=[], window=tm.count_window(1), values={"n": tm.count()}), sales())
    with pytest.raises(SettingError, match="no column 'cost'"):
        run(counted(tm.sum("cost")), sales())


def test_an_operator_without_keys_has_one_bucket() -> None:
    query = Query(lambda schema: counted(tm.sum("price")).build(schema))
    assert run(query, sales(), crash_at=1).crashes == 1
    with pytest.raises(SettingError, match="only one bucket"):
        run(query, sales(), buckets=2)


def test_windows_over_all_tuples_have_one_bucket() -> None:
    query = aggregate(by=[], window=tm.count_window(2), values={"total": tm.sum("price")})
    assert run(query, sales(), crash_at=1).crashes == 1
    with pytest.raises(SettingError, match="only one bucket"):
        run(query, sales(), buckets=2)


def test_types_can_be_given() -> None:
    rows = [{"item": 1, "price": 2.0, "at": None}] * 5
    report = run(_QUERY, [rows], schema=SCHEMA)
    assert report.results.schema.field("item").type == pa.int32()
    with pytest.raises(SettingError, match="does not fit"):
        run(_QUERY, [[{"item": "x"}]], schema=_TYPES)
