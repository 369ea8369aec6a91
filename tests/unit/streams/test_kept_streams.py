"""Streams of an earlier Trailmark are read, verified, written to, merged and trimmed."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from tests.support.kept_logs import ORDERS, orders, unpack, write_orders
from trailmark.log import LocalStorage
from trailmark.streams.retention import trim_before
from trailmark.streams.stored import StreamFiles
from trailmark.streams.table import read_table
from trailmark.streams.verify import verify_stream


def _rows(batches: range) -> pa.Table:
    return pa.concat_tables([orders(batch) for batch in batches])


def _in_order(rows: pa.Table) -> pa.Table:
    return rows.sort_by([(name, "ascending") for name in rows.column_names])


@pytest.mark.parametrize("kept", ORDERS)
def test_a_kept_stream_goes_on(tmp_path: Path, kept: str) -> None:
    unpack(tmp_path, kept)
    path = tmp_path / "spark" / "orders"
    storage = LocalStorage(path)
    end = ORDERS[kept]
    described = (path / "meta.json").read_bytes()
    assert verify_stream(storage).is_whole
    assert _in_order(read_table(path)) == _in_order(_rows(range(end)))
    write_orders(tmp_path / "spark", end, end + 3)
    files = StreamFiles(storage)
    assert _in_order(read_table(path)) == _in_order(_rows(range(end + 3)))
    versions = [files.log.read_footer(batch)[0].version for batch in files.log.batches()]
    assert versions == [1] * ORDERS["format-1"] + [2] * (end + 3 - ORDERS["format-1"])
    assert files.log.merge(end).stopped_by is None
    assert _in_order(read_table(path, starting_batch=3)) == _in_order(_rows(range(3, end + 3)))
    trim_before(storage, files.log, end + 2)
    assert _in_order(read_table(path)) == _in_order(_rows(range(files.log.oldest(), end + 3)))
    assert verify_stream(storage).is_whole
    assert (path / "meta.json").read_bytes() == described
