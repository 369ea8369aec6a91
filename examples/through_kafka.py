"""Counts the orders of an item in windows of ten seconds, from one topic of Kafka into another.

Start it with the connector of your Spark:

    spark-submit --packages org.apache.spark:spark-sql-kafka-0-10_2.13:4.3.0 through_kafka.py

and start it again, in the same directory, whenever it ends: it goes on where it was.
"""

import os
import sys

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

import trailmark as tm

os.environ["PYSPARK_PYTHON"] = sys.executable  # Spark's workers need Trailmark, too
SERVERS = os.environ.get("KAFKA_SERVERS", "localhost:9092")
spark = SparkSession.builder.getOrCreate()

messages = (
    spark.readStream.format("kafka")
    .option("kafka.bootstrap.servers", SERVERS)
    .option("subscribe", "orders")
    .option("startingOffsets", "earliest")
    .option("maxOffsetsPerTrigger", 1_000_000)
    .load()
)
columns = "item int, price int, ordered_at timestamp"
order = F.from_json(messages.value.cast("string"), columns)
orders = messages.select(order.alias("order")).select("order.*")

counts = tm.aggregate(
    orders,
    by="item",
    window=tm.time_window("ordered_at", "10 seconds", delay="5 seconds"),
    values={"n": tm.count(), "total": tm.sum("price")},
    path="logs/counts",
    recover_within="2 seconds",
)

# The key says which result it is: who reads the topic keeps the last one of each key.
results = counts.select(
    F.concat_ws(" ", "item", F.unix_timestamp("window.start")).alias("key"),
    F.to_json(F.struct("item", "window", "n", "total")).alias("value"),
)
writer = results.writeStream.format("kafka").option("kafka.bootstrap.servers", SERVERS)
writer = writer.option("topic", "counts").option("checkpointLocation", "ckpt/counts")
writer.start().awaitTermination()
