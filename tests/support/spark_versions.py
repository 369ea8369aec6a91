"""Tests that need a later Spark than the oldest that Trailmark runs on."""

from __future__ import annotations

import pyspark
import pytest

#: Major and minor version.
SPARK = tuple(map(int, pyspark.__version__.split(".")[:2]))


def needs_spark(version: str, what: str) -> pytest.MarkDecorator:
    """Skips a test, or with ``pytestmark`` a module, on earlier versions; ``what`` needs it."""
    wanted = tuple(map(int, version.split(".")))
    return pytest.mark.skipif(wanted > SPARK, reason=f"{what} needs Spark {version}")
