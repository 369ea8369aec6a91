"""The average price of every ten orders of an item: takes what has come since, and ends.

Start it whenever you like. One that is killed is made up for by the next.
"""

import os
import sys

from pyspark.sql import SparkSession

import trailmark as tm

os.environ["PYSPARK_PYTHON"] = sys.executable  # Spark's workers need Trailmark, too
spark = SparkSession.builder.getOrCreate()

orders = spark.readStream.schema("item int, price int").json("in")
average = tm.aggregate(
    orders,
    by="item",
    window=tm.count_window(10),
    values={"mean": tm.avg("price")},
    path="logs/average",
    recover_within="2 seconds",
)
writer = average.writeStream.option("checkpointLocation", "ckpt/average")
writer.trigger(availableNow=True).start("out/average").awaitTermination()
