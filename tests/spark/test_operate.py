"""Any operator can be put on Spark: no more of it is looked at than what every operator has."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

import trailmark as tm
from tests.support.pairing import Pairing
from tests.support.spark_feed import Feed, Query, rows_of
from trailmark.errors import UnsupportedType
from trailmark.operators.aggregate import Aggregate
from trailmark.operators.protocol import Operator
from trailmark.settings import Durability
from trailmark.spark.arguments import CommonArguments
from trailmark.spark.operate import Operation, operate

_SCHEMA = pa.schema([("item", pa.int32()), ("price", pa.int64())])
_TOTALS = Aggregate(
    _SCHEMA, by="item", window=tm.count_window(2), values={"total": tm.sum("price")}
)


class NothingButAnOperator:
    """An operator of which nothing is to be seen that not every operator has."""

    def __init__(self, hidden: Aggregate) -> None:
        self._hidden = hidden

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or not hasattr(Operator, name):
            raise AttributeError(name)
        return getattr(self._hidden, name)


class OfAnUnknownType(NothingButAnOperator):
    """Its results have a column for which Spark has no type."""

    shown_schema = pa.schema([("item", pa.int32()), ("total", pa.float16())])


def _operation(operator: Any = None, **more: Any) -> Operation:
    shown = NothingButAnOperator(_TOTALS) if operator is None else operator
    return Operation("total", shown, keys=("item",), results_from="sums", **more)


def _arguments(place: Path) -> CommonArguments:
    return CommonArguments.checked(
        place / "log",
        checkpoint=tm.Continuous(q=10),
        recover_within=None,
        buckets=2,
        retain_batches=None,
        durability=Durability.UNSYNCED,
        cache_dir=place / "cache",
    )


def _prices(items: list[int], prices: list[int]) -> pa.Table:
    return pa.table([pa.array(items, pa.int32()), pa.array(prices, pa.int64())], schema=_SCHEMA)


def _plan(df: DataFrame) -> str:
    return str(df._jdf.queryExecution().analyzed())


def test_an_operator_goes_on_where_its_query_stopped(spark: SparkSession, tmp_path: Path) -> None:
    feed = Feed(spark, tmp_path / "in", "item int, price bigint")
    query = Query(tmp_path)
    expected: Counter[tuple[Any, ...]] = Counter()
    for items, prices, totals in (
        ([1, 2, 1], [1, 10, 2], [(1, 3)]),
        ([2, 3, 1], [20, 100, 4], [(2, 30)]),
        ([1, 3], [8, 200], [(1, 12), (3, 300)]),
    ):
        feed.add(_prices(items, prices))
        results = operate((feed.stream(),), _operation(), _arguments(tmp_path))
        assert results.schema.simpleString() == "struct<item:int,total:bigint>"
        assert "trailmark_total(" in _plan(results), "plans name the operation"
        query.run(results)
        expected.update(totals)
        assert query.rows(spark) == expected


@pytest.mark.parametrize("flushes", [False, True])
def test_what_is_left_at_the_end_of_a_dataframe_is_up_to_the_operation(
    spark: SparkSession, tmp_path: Path, flushes: bool
) -> None:
    df = spark.createDataFrame([(1, 1), (2, 10), (1, 2)], "item int, price bigint")
    operation = _operation(at_end=_TOTALS.unfinished if flushes else None)
    results = operate((df,), operation, _arguments(tmp_path))
    assert rows_of(results) == Counter([(1, 3), *([(2, 10)] if flushes else [])])
    assert not (tmp_path / "log").exists()


def test_results_that_spark_has_no_type_for_are_refused_by_their_argument(
    spark: SparkSession, tmp_path: Path
) -> None:
    stream = Feed(spark, tmp_path / "in", "item int, price bigint").stream()
    with pytest.raises(UnsupportedType, match="no type for halffloat") as refused:
        operate((stream,), _operation(OfAnUnknownType(_TOTALS)), _arguments(tmp_path))
    assert refused.value.where == "sums"
    assert not (tmp_path / "log").exists()


def _of_side(side: str, **values: int) -> pa.Table:
    rows = [
        {"at": 60_000_000 * number, side: value, "key": int(key.removeprefix("key_"))}
        for number, (key, value) in enumerate(values.items())
    ]
    schema = [("at", pa.timestamp("us")), (side, pa.int64()), ("key", pa.int32())]
    return pa.Table.from_pylist(rows, pa.schema(schema))


def test_an_operator_with_several_inputs_has_a_dataframe_for_each(
    spark: SparkSession, tmp_path: Path
) -> None:
    left, right = (
        Feed(spark, tmp_path / side, f"at timestamp_ntz, {side} bigint, key int")
        for side in ("left", "right")
    )
    operation = Operation("pairing", Pairing((600_000_000, 600_000_000)), ("key",), "on")
    query = Query(tmp_path)

    def run() -> DataFrame:
        results = operate((left.stream(), right.stream()), operation, _arguments(tmp_path))
        query.run(results)
        return results

    left.add(_of_side("left", key_1=10, key_2=20))
    run()
    right.add(_of_side("right", key_1=100, key_2=200, key_3=300))
    run()
    left.add(_of_side("left", key_2=21))
    run()
    right.add(_of_side("right", key_2=201))
    results = run()
    assert query.rows(spark) == Counter([(1, 10, 100), (2, 20, 200), (2, 21, 201)])
    (step,) = tm.explanation(results).steps
    assert [read.title for read in step.inputs] == [
        f"parquet: {left.directory}",
        f"parquet: {right.directory}",
    ]
