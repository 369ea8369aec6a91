"""Makes ``format("trailmark")`` known to Spark, which looks for `DefaultSource` in packages whose
names begin with ``pyspark_``."""

from trailmark.spark.source import TrailmarkSource as DefaultSource

__all__ = ["DefaultSource"]
