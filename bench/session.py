"""The Spark session of benchmarks."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping

from pyspark.sql import SparkSession

_NOTHING: Mapping[str, str] = {}


def start_session(cores: int = 2, settings: Mapping[str, str] = _NOTHING) -> SparkSession:
    """A local session, quiet, whose workers run this Python and keep what they compile."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    spark = (
        SparkSession.builder.master(f"local[{cores}]")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.memory", "4g")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.sql.session.timeZone", "UTC")
        .config(map=dict(settings))
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    return spark
