"""Reading an operator's tentative results: options of the source, in queries and in streams."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession

from tests.support.answered import RESULT_NAMES, SOME_STEPS, Answered, Row, apply_changes
from tests.support.answered import Change as Told
from tests.support.spark_feed import Query
from tests.support.spark_streams import add, follow, query
from trailmark.log import LocalStorage


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("logs")


@pytest.fixture(scope="module")
def logs(path: Path) -> Answered:
    return Answered(LocalStorage(path), SOME_STEPS).run()


def _marked(df: DataFrame) -> Counter[tuple[Row, bool]]:
    rows = df.select(*RESULT_NAMES, "tentative").collect()
    return Counter((tuple(row)[:-1], row.tentative) for row in rows)


def test_queries_read_stable_results_all_or_those_that_stand(
    spark: SparkSession, logs: Answered, path: Path
) -> None:
    stable = query(spark, path)
    assert stable.columns == [*RESULT_NAMES]
    assert stable.schema == query(spark, path, answers="stable").schema
    everything = query(spark, path, answers="all")
    assert everything.schema.simpleString().endswith("tentative:boolean>")
    assert _marked(everything) == Counter(logs.everything())
    assert _marked(everything.where("not tentative")) == Counter(
        (tuple(row), False) for row in stable.collect()
    )
    for last in (3, 6):
        found = query(spark, path, answers="current", endingBatch=last)
        assert _marked(found) == logs.current(last)
    few = query(spark, path, schema="tentative boolean", answers="current")
    assert Counter(row.tentative for row in few.collect()) == Counter(
        is_tentative for _, is_tentative in logs.current(6).elements()
    )


def test_streams_follow_all_results_and_cannot_be_what_stands(
    spark: SparkSession, logs: Answered, path: Path, tmp_path: Path
) -> None:
    copy = Query(tmp_path)
    copy.run(follow(spark, path, answers="all"))
    assert _marked(spark.read.parquet(str(copy.out))) == Counter(logs.everything())
    with pytest.raises(Exception, match=r"(?s)cannot take back.*where: answers.*readChangeFeed"):
        Query(tmp_path, "current").run(follow(spark, path, answers="current"))


def test_a_change_feed_is_the_same_queried_and_followed(
    spark: SparkSession, logs: Answered, path: Path, tmp_path: Path
) -> None:
    queried = query(spark, path, readChangeFeed="true")
    assert queried.schema.simpleString().endswith(
        "tentative:boolean,_change_type:string,_commit_version:bigint,_commit_timestamp:timestamp>"
    )
    copy = Query(tmp_path)
    progress = copy.run(follow(spark, path, READCHANGEFEED="true", maxRowsPerTrigger=1))
    assert len(progress) >= 6, "batch by batch"
    followed = spark.read.parquet(str(copy.out))
    wanted = Counter(each for n in range(len(SOME_STEPS)) for each in logs.changes(n))
    for df in (queried, followed):
        rows = df.select(*RESULT_NAMES, "tentative", "_change_type", "_commit_version").collect()
        found = [Told(tuple(row)[:-3], row[-3], row[-2], row[-1]) for row in rows]
        assert Counter(found) == wanted
        in_order = sorted(found, key=lambda each: (each.batch, each.change))
        assert apply_changes(in_order) == logs.current(6)


def test_what_does_not_go_together_is_refused_when_it_is_loaded(
    spark: SparkSession, logs: Answered, path: Path
) -> None:
    with pytest.raises(AnalysisException, match=r"(?s)no answers.*stable, all, current"):
        query(spark, path, answers="final")
    with pytest.raises(AnalysisException, match="A change feed has all results"):
        query(spark, path, answers="all", readChangeFeed="true")
    with pytest.raises(AnalysisException, match="about results, not about records 'input'"):
        query(spark, path, records="input", readChangeFeed="true")


def test_a_written_stream_is_read_with_or_without_its_tentative_rows(
    spark: SparkSession, tmp_path: Path
) -> None:
    stream = tmp_path / "stream"
    add(spark.sql("select id, id % 3 = 0 as tentative from range(9)"), stream)
    assert query(spark, stream).columns == ["id", "tentative"]
    assert query(spark, stream, answers="all").count() == 9
    stable = query(spark, stream, answers="stable")
    assert stable.columns == ["id"]
    assert sorted(row.id for row in stable.collect()) == [1, 2, 4, 5, 7, 8]
    with pytest.raises(AnalysisException, match="path of the operator"):
        query(spark, stream, answers="current")
    with pytest.raises(AnalysisException, match="no change feed"):
        query(spark, stream, readChangeFeed="true")
