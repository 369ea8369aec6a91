"""Puts the results of scheduled_job.py into a table of a database, each of them once.

This is SQLite. With PostgreSQL it is the same with psycopg, "%s" for "?", and "INSERT ... ON
CONFLICT DO NOTHING" for "INSERT OR IGNORE".
"""

import os
import sqlite3
import sys
from contextlib import closing

from pyspark.sql import DataFrame, SparkSession

os.environ["PYSPARK_PYTHON"] = sys.executable  # Spark's workers need Trailmark, too
spark = SparkSession.builder.getOrCreate()

with closing(sqlite3.connect("shop.db")) as database, database:
    database.execute("CREATE TABLE IF NOT EXISTS averages (item INTEGER, mean REAL)")
    database.execute("CREATE TABLE IF NOT EXISTS batches (number INTEGER PRIMARY KEY)")


def insert(rows: DataFrame, number: int) -> None:
    """Inserts a batch, unless it is one that Spark gives a second time."""
    found = [tuple(row) for row in rows.select("item", "mean").collect()]
    with closing(sqlite3.connect("shop.db")) as database, database:
        new = database.execute("INSERT OR IGNORE INTO batches VALUES (?)", (number,))
        if new.rowcount:
            database.executemany("INSERT INTO averages VALUES (?, ?)", found)


results = spark.readStream.format("trailmark").option("reader", "shop").load("logs/average")
writer = results.writeStream.foreachBatch(insert).option("checkpointLocation", "ckpt/shop")
writer.trigger(availableNow=True).start().awaitTermination()
