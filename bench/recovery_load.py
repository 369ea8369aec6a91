"""Loads the state of a log in a new process and prints how long it took, as JSON.

The clock starts where a Spark Python worker begins to run a function over Arrow batches: PySpark's
worker, NumPy and Arrow are imported, nothing of Trailmark is. ``cold`` counts Trailmark's import,
loading its compiled code, and the first load of the process.
"""

from __future__ import annotations

import json
import sys
import time

import numpy  # noqa: F401
import pyarrow  # noqa: F401
import pyspark.worker  # noqa: F401


def main(root: str, target: int) -> None:
    started = time.perf_counter()
    from bench.orders import aggregate, now_us
    from trailmark.checkpoint.ledger import Ledger
    from trailmark.engine import OperatorLogs
    from trailmark.log import LocalStorage
    from trailmark.recovery import plan_recovery, restore
    from trailmark.state.memory import Memory
    from trailmark.state.table import StateTable

    imported = time.perf_counter()
    times = []
    replay_us = 0
    for _ in range(6):
        began = time.perf_counter()
        operator = aggregate()
        logs = OperatorLogs(LocalStorage(root), operator, buckets=1)
        output, inputs = logs.output(0), logs.input(0)
        plan = plan_recovery(operator, output, inputs, logs.snapshots(0), target, 0)
        memory = Memory()
        table, ledger = StateTable(operator.layout, memory), Ledger(memory)
        planned = time.perf_counter()
        restored = restore(plan, operator, table, ledger, output, inputs, 0, now_us)
        replay_us = restored.replay_us
        times.append(planned - began + restored.load_us / 1e6)
    print(
        json.dumps(
            {
                "import": imported - started,
                "cold": imported - started + times[0],
                "warm": sorted(times[1:])[len(times[1:]) // 2],
                "records": plan.records_read,
                "replay_tuples": plan.replay_tuples,
                "replay_seconds": replay_us / 1e6,
            }
        )
    )


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
