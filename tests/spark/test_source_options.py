"""Options of `format("trailmark")`: what is wrong is refused, in words that PySpark users see."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import AnalysisException, StreamingQueryException
from pyspark.sql import SparkSession

from tests.support.spark_streams import add, follow, manifests, numbers, query, write_stream


@pytest.fixture(scope="module")
def stream(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("options") / "stream"
    add(spark.range(3), path)
    return path


@pytest.mark.parametrize(
    ("options", "what", "where", "fix"),
    [
        ({"startingBatch": "-1"}, "'-1' is not a whole number from 0 up.", "startingBatch", "100"),
        ({"endingbatch": "x"}, "'x' is not a whole number", "endingBatch", "in digits"),
        ({"MAXROWSPERTRIGGER": 0}, "'0' is not a whole number from 1", "maxRowsPerTrigger", "100"),
        ({"maxBytesPerTrigger": "much"}, "'much' is not a size.", "maxBytesPerTrigger", "64 MiB"),
        ({"startingTimestamp": "noon"}, "'noon' is not a time.", "startingTimestamp", "2026-01-31"),
        ({"startingOffsets": "middle"}, "'middle' is unknown.", "startingOffsets", "earliest or"),
        ({"failOnDataLoss": "maybe"}, "'maybe' is unknown.", "failOnDataLoss", "true or false"),
        ({"reader": "a/b"}, "'a/b' cannot be the name of a reader.", "reader", "billing"),
        ({"records": "all"}, "not records 'all'", "records", "Leave the option out"),
        ({"reder": "billing"}, "no option 'reder' for reading", "reder", "Did you mean reader?"),
        ({"buckets": 3}, "buckets is an option for writing", "buckets", "Leave it out"),
        (
            {"startingBatch": 5, "endingBatch": 4},
            "The range ends before it begins: 5 to 4.",
            "startingBatch, endingBatch",
            "",
        ),
        (
            {"startingBatch": 5, "startingOffsets": "latest"},
            "startingOffsets and startingBatch both say where to begin.",
            "startingOffsets, startingBatch",
            "Give one of them.",
        ),
    ],
)
def test_a_wrong_option_of_a_read_is_refused_with_what_where_and_what_to_do(
    spark: SparkSession, stream: Path, options: dict[str, Any], what: str, where: str, fix: str
) -> None:
    with pytest.raises(AnalysisException) as refused:
        query(spark, stream, **options)
    message = str(refused.value)
    assert what in message
    assert f"where: {where}" in message
    assert fix in message.partition("where:")[2]


@pytest.mark.parametrize(
    ("options", "what", "where", "fix"),
    [
        ({"buckets": 0}, "'0' is not a whole number from 1 up.", "buckets", "in digits"),
        ({"buckets": 3}, "A stream cannot have 3 buckets.", "buckets", "the key columns"),
        ({"partitionBy": "id,,"}, "'id,,' names no columns.", "partitionBy", "with commas"),
        ({"partitionBy": "no_such"}, "There is no column 'no_such'.", "keys", "columns are id"),
        ({"timeColumn": "id"}, "Column 'id' of type int64 is no time.", "timeColumn", "Name a"),
        ({"durability": "none"}, "'none' is unknown.", "durability", "synced"),
        ({"compression": "rar"}, "'rar' is unknown.", "compression", "zstd"),
        ({"retention": "long"}, "'long'", "retention", "5 seconds"),
        ({"partition": "id"}, "no option 'partition' for writing", "partition", "partitionBy?"),
        ({"retentionBytes": "huge"}, "'huge' is not a size.", "retentionBytes", "64 MiB"),
        ({"retentionBatches": "1.5"}, "'1.5' is not a whole", "retentionBatches", "in digits"),
    ],
)
def test_a_wrong_option_of_a_write_is_refused_and_nothing_is_begun(
    spark: SparkSession, tmp_path: Path, options: dict[str, Any], what: str, where: str, fix: str
) -> None:
    with pytest.raises(AnalysisException) as refused:
        add(spark.range(3), tmp_path / "stream", **options)
    message = str(refused.value)
    assert what in message
    assert f"where: {where}" in message
    assert fix in message.partition("where:")[2]
    assert not (tmp_path / "stream").exists()


def test_a_streaming_read_has_no_end_and_a_path_has_to_be_given(
    spark: SparkSession, stream: Path, tmp_path: Path
) -> None:
    with pytest.raises(StreamingQueryException, match=r"(?s)cannot be given an end.*availableNow"):
        write_stream(follow(spark, stream, endingBatch=3), tmp_path / "copy", tmp_path / "c")
    with pytest.raises(AnalysisException, match=r"(?s)No path was given.*where: path.*next:"):
        spark.read.format("trailmark").load()


def test_settings_of_a_write_take_effect(spark: SparkSession, tmp_path: Path) -> None:
    rows = spark.range(2000).selectExpr("id", "repeat('x', 100) as text").coalesce(1)
    for name, options in {
        "plain": {"compression": "NONE", "durability": "UNSYNCED"},
        "small": {"compression": "zstd"},
    }.items():
        add(rows, tmp_path / name, **options)
    (plain,), (small,) = (manifests(tmp_path / name) for name in ("plain", "small"))
    assert plain.rows == small.rows == 2000
    assert small.bytes < plain.bytes / 4


def test_options_that_spark_adds_are_no_mistake(
    spark: SparkSession, stream: Path, tmp_path: Path
) -> None:
    writer = follow(spark, stream).writeStream.format("trailmark").queryName("copying")
    writer = writer.option("checkpointLocation", str(tmp_path / "c")).trigger(availableNow=True)
    writer.start(str(tmp_path / "copy")).awaitTermination()
    assert numbers(query(spark, tmp_path / "copy")) == [0, 1, 2]


def test_in_sql_a_stream_is_a_temporary_view(spark: SparkSession, tmp_path: Path) -> None:
    add(spark.range(3), tmp_path)
    spark.sql(f"CREATE TEMPORARY VIEW viewed USING trailmark OPTIONS (path '{tmp_path}')")
    spark.sql("INSERT INTO viewed VALUES (3), (4)")
    assert numbers(spark.sql("SELECT * FROM viewed WHERE id > 1")) == [2, 3, 4]
    spark.sql("DROP VIEW viewed")


@pytest.mark.parametrize("place", ["OPTIONS (path '{}')", "LOCATION '{}'"])
def test_a_table_of_a_catalog_is_refused_with_what_to_use(
    spark: SparkSession, stream: Path, place: str
) -> None:
    made = f"USING trailmark {place.format(stream)}"
    with pytest.raises(AnalysisException, match=r"(?s)does not tell its path.*TEMPORARY VIEW"):
        spark.sql(f"CREATE TABLE refused {made}")
    # With columns Spark asks nothing when it is made, and has forgotten the path when it is used.
    spark.sql(f"CREATE TABLE forgotten (id bigint) {made}")
    with pytest.raises(AnalysisException, match=r"(?s)No path was given.*TEMPORARY VIEW"):
        spark.table("forgotten").collect()
    spark.sql("DROP TABLE forgotten")


def test_other_columns_than_the_stream_has_are_told(spark: SparkSession, stream: Path) -> None:
    with pytest.raises(AnalysisException) as refused:
        add(spark.range(3).selectExpr("cast(id as string) as id", "1 as more"), stream)
    message = str(refused.value)
    assert "What is written is not what the stream holds" in message
    assert "column id: int64 -> string" in message
    assert "column more: absent -> int32" in message
    assert f"where: {stream}/meta.json" in message
    assert "operator" not in message.partition("What is written")[2].partition("JVM")[0]


def test_a_relative_path_is_told_in_full(spark: SparkSession) -> None:
    with pytest.raises(AnalysisException) as refused:
        query(spark, "no/such/stream")
    assert f"There is no stream at {os.getcwd()}/no/such/stream." in str(refused.value)
