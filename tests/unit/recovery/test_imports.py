"""A recovery in a new process waits for every import: it asks for no slow one it can do without."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

_RUN = """
import sys
import numpy as np
import pyarrow as pa
from trailmark import Continuous, avg, count_window
from trailmark.engine import Bucket, OperatorLogs
from trailmark.log import LocalStorage
from trailmark.operators.aggregate import Aggregate

schema = pa.schema([("item", pa.int32()), ("price", pa.int32())])
operator = Aggregate(schema, by="item", window=count_window(10), values={"p": avg("price")})
logs = OperatorLogs(LocalStorage(sys.argv[1]), operator, buckets=1)
bucket = Bucket(operator, logs, 0, Continuous(q=300))
rng = np.random.default_rng(1)
for batch in range(int(sys.argv[2]), int(sys.argv[3])):
    item, price = (rng.integers(0, 100, 200, dtype=np.int32) for _ in range(2))
    columns = [
        pa.Array.from_buffers(pa.int32(), 200, [None, pa.py_buffer(values)])
        for values in (item, price)
    ]
    report = bucket.run(batch, pa.RecordBatch.from_arrays(columns, schema=schema))
    if batch == int(sys.argv[2]) > 0:
        assert report.recovery.plan.open_windows > 50, "there was something to recover"
slow = {
    *("pandas", "pyarrow.compute", "pyspark", "trailmark.cli", "trailmark.spark"),
    *("trailmark.inspection", "trailmark.upkeep", "trailmark.log.index", "trailmark.log.merge"),
    *("trailmark.log.repair", "trailmark.log.storage.object_store", "trailmark.log.verify"),
    *("trailmark.log.readers", "trailmark.streams"),
}
print(sorted(slow & set(sys.modules)))
made = {
    value
    for name, module in list(sys.modules.items()) if name.startswith("trailmark.")
    for value in list(vars(module).values())
    if isinstance(value, type) and "__dataclass_fields__" in vars(value)
}
assert len(made) > 40
print(sorted(c.__module__ for c in made if c.__eq__.__module__ != "trailmark.values"))
"""


def _new_process(place: Path, first: int, last: int) -> tuple[list[str], list[str]]:
    """Runs some batches: slow modules it has imported, modules with dataclasses made slowly."""
    command = [sys.executable, "-c", _RUN, str(place), str(first), str(last)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    imported, made = (ast.literal_eval(line) for line in done.stdout.splitlines())
    return imported, made


def test_batches_and_recovery_of_numbers_import_only_what_they_need(tmp_path: Path) -> None:
    for first, last in ((0, 8), (8, 10)):
        imported, made = _new_process(tmp_path, first, last)
        assert imported == []
        assert made == [], "import dataclass from trailmark.values"
