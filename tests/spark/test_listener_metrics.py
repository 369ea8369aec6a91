"""`tm.listen(spark, metrics=...)` serves figures of this driver's operators; the files of a real
query tell whom it reads."""

from __future__ import annotations

import time
from pathlib import Path
from urllib.request import urlopen

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import trailmark as tm
from tests.support.spark_feed import Query
from trailmark.errors import SettingError
from trailmark.watch import Edge, Places, Sampler

_SCHEMA = pa.schema([("item", pa.int32()), ("price", pa.int32())])


def test_figures_are_served_and_the_stream_behind_a_query_is_found(
    spark: SparkSession, tmp_path: Path
) -> None:
    path, stream = tmp_path / "all" / "mean", tmp_path / "all" / "orders"
    writer = tm.stream_writer(stream, _SCHEMA, name="shop")
    writer.append(pa.RecordBatch.from_pydict({"item": [1] * 30, "price": [2] * 30}, _SCHEMA))
    tm.register(spark)
    listener = tm.listen(spark, metrics=0)
    server = listener.metrics
    assert server is not None
    try:
        assert tm.listen(spark, metrics=server.port).metrics is server
        mean = tm.aggregate(
            spark.readStream.format("trailmark").load(str(stream)),
            by="item",
            window=tm.count_window(10),
            values={"mean": tm.avg("price")},
            path=path,
            buckets=1,
        )
        Query(tmp_path).run(mean)
        wanted = f'trailmark_tuples_total{{bucket="0",path="{path}"}} 30.0'
        until = time.monotonic() + 60
        while wanted not in (text := urlopen(server.url, timeout=30).read().decode()):
            assert time.monotonic() < until, text
            time.sleep(0.1)
    finally:
        server.close()
        spark.streams.removeListener(listener)
    edges = Sampler(Places([str(tmp_path / "all")])).look().edges
    assert edges == (Edge(str(stream), str(path)),)


@pytest.mark.parametrize("port", [-1, 70_000, True, "9090"])
def test_what_is_no_port_is_refused(spark: SparkSession, port: object) -> None:
    with pytest.raises(SettingError, match="metrics must be a port"):
        tm.listen(spark, metrics=port)  # type: ignore[arg-type]
