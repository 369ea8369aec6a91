"""The queries of NEXMark give what plain Python gives, on Trailmark and on Spark's operators."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from bench.batch_files import run_to_end, write_batch
from bench.nexmark import plain, spark_queries, trailmark_queries
from bench.nexmark.events import KINDS
from bench.nexmark.files import Batches, closing
from bench.nexmark.results import rows_in
from bench.nexmark.tables import Tables
from bench.operators import ROCKSDB

#: Few events, and windows that begin in one batch and end in another.
_BATCHES = Batches(15_000, 2, rate=1000)
_PARTITIONS = 1
_ENGINES = {"trailmark": trailmark_queries.QUERIES, "spark": spark_queries.QUERIES}
#: All of ours. The benchmark compares Spark's with them: here are the two that are least alike.
_RUNS = [*(("trailmark", query) for query in plain.QUERIES), ("spark", "q6"), ("spark", "q11")]


@pytest.fixture(scope="module")
def events(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Files of the last batch have the events that close windows, too: one batch less."""
    directory = tmp_path_factory.mktemp("nexmark")
    for kind in KINDS:
        (directory / kind).mkdir()
        *tables, last = _BATCHES.tables(kind)
        tables.append(pa.concat_tables([last, closing(_BATCHES, kind)]))
        for number, rows in enumerate(tables):
            write_batch(directory / kind, number, rows)
    return directory


@pytest.fixture(scope="module", autouse=True)
def rocksdb_in_one_part(spark: SparkSession) -> Iterator[None]:
    """Spark's state in RocksDB, as in the benchmark, but in one part."""
    settings = {**ROCKSDB, "spark.sql.shuffle.partitions": str(_PARTITIONS)}
    for name, value in settings.items():
        spark.conf.set(name, value)
    yield
    for name in settings:
        spark.conf.unset(name)  # the session of the tests has none of these


@pytest.fixture(scope="module")
def site() -> plain.Site:
    return plain.site(*(_BATCHES.stream.table(kind) for kind in KINDS))


@pytest.mark.parametrize(("engine", "query"), _RUNS)
def test_a_query_gives_what_plain_python_gives(
    engine: str, query: str, spark: SparkSession, events: Path, site: plain.Site, tmp_path: Path
) -> None:
    longest_ms, cache = _BATCHES.stream.longest_ms, tmp_path / "cache"
    tables = Tables(spark, events, tmp_path / "log", longest_ms, _PARTITIONS, cache)
    writer = _ENGINES[engine][query](tables).writeStream.format("parquet")
    run_to_end(writer.option("path", str(tmp_path / "out")), tmp_path / "checkpoint")

    assert rows_in(tmp_path / "out") == sorted(plain.QUERIES[query](site))
