"""Puts the results of scheduled_job.py into a table of Delta Lake, each of them once.

It takes the package deltalake, which brings all that it needs.
"""

import os
import sys

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake
from pyspark.sql import DataFrame, SparkSession

os.environ["PYSPARK_PYTHON"] = sys.executable  # Spark's workers need Trailmark, too
spark = SparkSession.builder.getOrCreate()

COLUMNS = pa.schema([("item", pa.int32()), ("mean", pa.float64())])
DeltaTable.create("tables/averages", COLUMNS, mode="ignore")


def append(rows: DataFrame, number: int) -> None:
    """Adds a batch, unless it is one that Spark gives a second time."""
    table = DeltaTable("tables/averages")
    newest = table.transaction_version("averages")
    if newest is None or number > newest:
        marked = CommitProperties(app_transactions=[Transaction("averages", number)])
        write_deltalake(table, rows.toArrow(), mode="append", commit_properties=marked)


results = spark.readStream.format("trailmark").option("reader", "averages").load("logs/average")
writer = results.writeStream.foreachBatch(append).option("checkpointLocation", "ckpt/averages")
writer.trigger(availableNow=True).start().awaitTermination()
