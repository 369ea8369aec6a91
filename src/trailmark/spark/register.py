"""`tm.register`: the data source for those who would rather say so."""

from __future__ import annotations

from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

from trailmark.spark.source import TrailmarkSource
from trailmark.spark.workers import check_workers


def register(spark: SparkSession) -> None:
    """Make ``format("trailmark")`` known to a session.

    Spark finds the installed package by itself. This is for sessions that do not look for data
    sources, and for those who like to see where a format comes from.

    Examples
    --------
    >>> tm.register(spark)                                            # doctest: +SKIP
    >>> spark.read.format("trailmark").load("/data/orders").show()    # doctest: +SKIP
    """
    check_workers(spark)
    try:
        spark.dataSource.register(TrailmarkSource)
    except AnalysisException as error:
        # Spark 4.0 refuses what it has found by itself.
        if error.getCondition() != "DATA_SOURCE_ALREADY_EXISTS":
            raise
