"""Columns of a persistent stream on Spark: every type there and back, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructField, StructType

import trailmark as tm
from tests.support.spark_streams import add, follow, numbers, query, values_of, write_stream
from tests.support.spark_versions import needs_spark

#: A value that is easy to get wrong, by type; the session's zone is not UTC and changes its clocks.
_VALUES = {
    "boolean": "true",
    "tinyint": "-128Y",
    "smallint": "32767S",
    "int": "-2147483648",
    "bigint": "9223372036854775807L",
    "float": "cast('-0.0' as float)",
    "double": "cast('NaN' as double)",
    "decimal(10,2)": "-99999999.90BD",
    "decimal(38,18)": "12345678901234567890.000000000000000010BD",
    "decimal(38,0)": "99999999999999999999999999999999999999BD",
    "string": "'ü\\0 and more'",
    "binary": "X'00FF80'",
    "date": "date'0001-01-01'",
    "timestamp": "timestamp'2024-09-29 03:10:00.000001'",  # an hour that does not exist there
    "timestamp_ntz": "timestamp_ntz'2024-09-29 03:10:00.000001'",
    "interval day to second": "interval '-3 04:05:06.789012' day to second",
    "interval hour": "interval 5 hours",
    "array<timestamp>": "array(timestamp'1900-01-01 00:00:00', null)",
    "array<array<int>>": "array(array(), array(1, null), null)",
    "map<string,decimal(5,1)>": "map('one', 1.0BD, 'none', null)",
    "map<int,struct<t:timestamp,n:timestamp_ntz,b:binary>>": (
        "map(7, named_struct('t', timestamp'9999-12-31 00:00:00', "
        "'n', timestamp_ntz'1582-10-04 00:00:00', 'b', X''))"
    ),
    "struct<i:interval day to second,l:array<struct<x:double>>>": (
        "named_struct('i', interval 1 day, 'l', array(named_struct('x', double('-Infinity'))))"
    ),
}


@pytest.fixture(scope="module")
def all_types(spark: SparkSession) -> DataFrame:
    """A row of values, a row of nulls, and another row of values."""
    columns = [
        f"cast(if(id = 1, null, {value}) as {kind}) as `{kind}`" for kind, value in _VALUES.items()
    ]
    return spark.range(0, 3, numPartitions=2).selectExpr("id", *columns)


@pytest.fixture(scope="module")
def stream(all_types: DataFrame, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("columns") / "stream"
    add(all_types, path)
    return path


def test_every_type_comes_back_as_it_was(
    spark: SparkSession, all_types: DataFrame, stream: Path
) -> None:
    assert spark.conf.get("spark.sql.session.timeZone") == "Pacific/Chatham"
    found = query(spark, stream)
    assert values_of(found) == values_of(all_types)
    assert found.schema == StructType(
        [StructField(field.name, field.dataType, True) for field in all_types.schema]
    )


def test_every_type_passes_through_a_query_that_follows_one_stream_and_writes_another(
    spark: SparkSession, all_types: DataFrame, stream: Path, tmp_path: Path
) -> None:
    copy = tmp_path / "copy"
    write_stream(
        follow(spark, stream), copy, tmp_path / "checkpoint", partitionBy="id, string, timestamp"
    )
    assert values_of(query(spark, copy)) == values_of(all_types)
    assert query(spark, copy).schema == query(spark, stream).schema


def test_char_and_varchar_come_back_as_spark_gives_them(
    spark: SparkSession, tmp_path: Path
) -> None:
    spark.sql("create or replace temp view texts as select 1L id, 'a' c, 'b ' v")
    spark.sql("drop table if exists padded")
    spark.sql("create table padded (id bigint, c char(4), v varchar(4)) using parquet")
    spark.sql("insert into padded table texts")
    table = spark.table("padded")
    add(table, tmp_path / "stream")
    found = query(spark, tmp_path / "stream")
    assert values_of(found) == values_of(table) == ["{'id': 1, 'c': 'a   ', 'v': 'b '}"]
    assert found.where("c = 'a'").count() == table.where("c = 'a'").count() == 1


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("interval month", "interval 3 months"),
        ("void", "null"),
        ("variant", "parse_json('1')"),
        pytest.param("time(6)", "time'12:00:00'", marks=needs_spark("4.1", "its type time")),
    ],
)
def test_other_types_are_refused_by_name_wherever_they_are_nested(
    spark: SparkSession, tmp_path: Path, kind: str, value: str
) -> None:
    path = tmp_path / "stream"
    for nested, place in ((value, "x"), (f"array(named_struct('y', {value}))", "x.element.y")):
        with pytest.raises(AnalysisException) as refused:
            add(spark.sql(f"select {nested} as x"), path)
        message = str(refused.value)
        assert f"Column '{place}' of type {kind} cannot be kept in a stream." in message
        assert "where: schema" in message
        assert "next:  Cast it, to a string for example, or leave it out." in message
    assert not path.exists(), "nothing was begun"


def test_a_schema_is_a_choice_of_columns(spark: SparkSession, stream: Path, tmp_path: Path) -> None:
    assert query(spark, stream, "string string, id long").columns == ["string", "id"]
    assert values_of(query(spark, stream, "string string, id long")) == values_of(
        query(spark, stream).select("string", "id")
    )
    followed = follow(spark, stream, "id long")
    write_stream(followed, tmp_path / "copy", tmp_path / "checkpoint")
    assert query(spark, tmp_path / "copy").columns == ["id"]
    assert numbers(query(spark, tmp_path / "copy")) == [0, 1, 2]


@pytest.mark.parametrize(
    ("schema", "complaint"),
    [
        ("id int", "Column 'id' is int64 in the stream, not int32."),
        ("id long, no_such string", "Column 'no_such' is absent in the stream, not string."),
    ],
)
def test_a_schema_with_other_columns_is_refused(
    spark: SparkSession, stream: Path, schema: str, complaint: str
) -> None:
    with pytest.raises(AnalysisException) as refused:
        query(spark, stream, schema).collect()
    message = str(refused.value)
    assert complaint in message
    assert "where: schema" in message
    assert "next:  The stream has id: int64, boolean: bool, " in message


def test_rows_with_other_columns_than_the_stream_are_refused(
    spark: SparkSession, tmp_path: Path
) -> None:
    path = tmp_path / "stream"
    add(spark.range(3), path)
    for other in ("id, 1 as more", "cast(id as int) as id", "id as other"):
        with pytest.raises(AnalysisException, match=r"(?s)SchemaChanged.*next: "):
            add(spark.range(3).selectExpr(*other.split(", ")), path)
    assert numbers(query(spark, path)) == [0, 1, 2]


def test_a_session_may_register_the_format_itself(spark: SparkSession, tmp_path: Path) -> None:
    session = spark.newSession()
    tm.register(session)
    add(session.range(3), tmp_path / "stream")
    assert numbers(query(session, tmp_path / "stream")) == [0, 1, 2]
    assert numbers(query(spark, tmp_path / "stream")) == [0, 1, 2], "where it is not registered"
