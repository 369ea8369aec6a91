"""Tests of your own operators, without Spark: run, crash everywhere, recover, and compare.

What is tested runs on the engine that Spark's tasks run, over a disk in memory (`disk`) that stops
wherever that is asked for, in one process after another (`processes`) that has nothing but that
disk and your code as it was sent to it (`own_code`). `tester` runs the batches without a crash and
with each one that is asked for, `differences` compares.
"""

from trailmark.errors import RecoveryDiffers
from trailmark.testing.crashes import Crash
from trailmark.testing.query import Query, aggregate, apply, barrier, join
from trailmark.testing.report import Report
from trailmark.testing.tester import run

__all__ = [
    "Crash",
    "Query",
    "RecoveryDiffers",
    "Report",
    "aggregate",
    "apply",
    "barrier",
    "join",
    "run",
]
