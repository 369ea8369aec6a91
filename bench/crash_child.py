"""Runs a workload from where its logs end until somebody kills the process.

Says "ready" when it is about to open the bucket; ends by itself after some batches if told so, or
when it has run for so long that whoever should have killed it must be gone.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

from bench.orders import aggregate
from bench.workloads import WORKLOADS
from trailmark.checkpoint.policy import Continuous
from trailmark.engine import Bucket, OperatorLogs
from trailmark.log import LocalStorage
from trailmark.state.cache import StateCache

_LONGEST_S = 60.0


def main(root: str, cache: str, workload_name: str, objective: str, most_batches: int) -> None:
    workload = WORKLOADS[workload_name]
    operator = aggregate()
    logs = OperatorLogs(LocalStorage(root), operator, buckets=1)
    batch = logs.output(0).newest() + 1
    rows = workload.rows(batch)
    policy = Continuous.within(objective)
    ends = time.monotonic() + _LONGEST_S
    print("ready", flush=True)
    bucket = Bucket(operator, logs, 0, policy, StateCache(Path(cache)))
    while most_batches and time.monotonic() < ends:
        bucket.run(batch, rows)
        batch, most_batches = batch + 1, most_batches - 1
        rows = workload.rows(batch)
    bucket.close()


if __name__ == "__main__":
    _, place, state, stream, within, most = sys.argv
    main(place, state, stream, within, int(most))
