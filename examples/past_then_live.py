"""The highest price of every ten orders of an item: those of the past first, then what comes.

With the argument "history" it puts the past into a stream, once. Without one it adds to the same
stream whatever comes, and follows it.
"""

import os
import sys

from pyspark.sql import SparkSession

import trailmark as tm

os.environ["PYSPARK_PYTHON"] = sys.executable  # Spark's workers need Trailmark, too
spark = SparkSession.builder.getOrCreate()

if "history" in sys.argv:
    history = spark.read.schema("item int, price int").json("history")
    history.write.format("trailmark").mode("append").save("streams/orders")
    sys.exit()

live = spark.readStream.schema("item int, price int").json("in")
kept = live.writeStream.format("trailmark").option("checkpointLocation", "ckpt/orders")
kept.start("streams/orders")

highest = tm.aggregate(
    spark.readStream.format("trailmark")
    .option("maxRowsPerTrigger", 1_000_000)
    .load("streams/orders"),
    by="item",
    window=tm.count_window(10),
    values={"highest": tm.max("price")},
    path="logs/highest",
    recover_within="2 seconds",
)
highest.writeStream.option("checkpointLocation", "ckpt/highest").start("out/highest")
spark.streams.awaitAnyTermination()
