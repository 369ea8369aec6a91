"""Spark starts processes to commit to a stream: they import no more than a commit takes."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

from trailmark.streams.table import read_table

_COMMIT = """
import sys
from array import array
import pyarrow as pa
from pyspark.sql.types import StructType
from trailmark.spark.sink import WrittenFiles
from trailmark.spark.source import TrailmarkSource

writer = TrailmarkSource({"path": sys.argv[1]}).streamWriter(StructType().add("id", "long"), False)
for number in range(2):
    data = array("q", [2 * number, 2 * number + 1])  # a list would make Arrow import pandas
    ids = pa.Array.from_buffers(pa.int64(), 2, [None, pa.py_buffer(data)])
    message = writer.write(iter([pa.RecordBatch.from_arrays([ids], names=["id"])]))
    writer.commit([WrittenFiles(message.files, "query", message.planned), None], number)
slow = {
    *("pandas", "pyarrow.compute", "trailmark.checkpoint", "trailmark.engine"),
    *("trailmark.log.index", "trailmark.log.merge", "trailmark.log.storage.object_store"),
    *("trailmark.recovery", "trailmark.inspection", "trailmark.streams.operator_view"),
}
print(sorted(slow & set(sys.modules)))
"""


def test_a_commit_imports_neither_the_engine_nor_what_reads_its_logs(tmp_path: Path) -> None:
    command = [sys.executable, "-c", _COMMIT, str(tmp_path / "stream")]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    assert ast.literal_eval(done.stdout) == []
    assert read_table(tmp_path / "stream")["id"].to_pylist() == [0, 1, 2, 3]
