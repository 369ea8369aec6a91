"""Texts that are not UTF-8, as Spark makes them of bytes, are keys and values like any other."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

import trailmark as tm
from trailmark.checkpoint.policy import Continuous, Policy, UpstreamBackup
from trailmark.cli import main
from trailmark.engine import Bucket, OperatorLogs
from trailmark.inspection.verify import verify_operator
from trailmark.log import LocalStorage
from trailmark.log.rows import as_bytes
from trailmark.operators.aggregate import Aggregate

_SCHEMA = pa.schema([("key", pa.string()), ("value", pa.string())])
_TEXTS = [b"\xff\xfe", b"whole", b"p\xc3"]


def _rows() -> pa.RecordBatch:
    texts = pa.array(_TEXTS).view(pa.string())
    return pa.RecordBatch.from_arrays([texts, texts], schema=_SCHEMA)


@pytest.mark.parametrize("policy", [Continuous(q=3), UpstreamBackup()], ids=repr)
def test_a_query_over_them_recovers_is_verified_and_shown(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], policy: Policy
) -> None:
    storage = LocalStorage(tmp_path)
    values = {"last": tm.last("value"), "greatest": tm.max("value")}
    for batch in range(6):
        operator = Aggregate(_SCHEMA, by="key", window=tm.count_window(3), values=values)
        bucket = Bucket(operator, OperatorLogs(storage, operator, buckets=1), 0, policy)
        report = bucket.run(batch, _rows())  # in a new process each
        bucket.close()
        if batch % 3 == 2:
            for column in report.results.columns:
                assert sorted(as_bytes(column).to_pylist()) == sorted(_TEXTS)
    assert verify_operator(storage).is_whole
    assert main(["log", str(tmp_path), "--records"]) == 0
    assert "\ufffd" in capsys.readouterr().out
