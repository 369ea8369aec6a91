"""Memory is files that processes share, or private; growing it keeps what is there."""

from __future__ import annotations

import errno
import multiprocessing
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tests.support.compare import table_states
from tests.support.plain import batch_of
from trailmark.errors import CacheFull, StorageError
from trailmark.operators.aggregate import Aggregate
from trailmark.operators.protocol import BatchInput
from trailmark.state.memory import PAGE, Memory, Region
from trailmark.state.table import StateTable
from trailmark.windows import functions as f
from trailmark.windows.spec import CountWindow

_SCHEMA = pa.schema([("k", pa.string()), ("v", pa.string())])


def _operator() -> Aggregate:
    values = {"n": f.count(), "last": f.last("v"), "low": f.min("v")}
    return Aggregate(_SCHEMA, by="k", window=CountWindow(50, 50), values=values)


def _rows(batch: int) -> pa.RecordBatch:
    return batch_of(
        _SCHEMA, [(f"key {n * 7 % 900}" * (n % 5), f"{batch} {n}" * 9) for n in range(1000)]
    )


def _grow_shared_table(directory: str, batch: int) -> None:
    operator = _operator()
    table = StateTable(operator.layout, Memory(Path(directory)), is_new=batch == 0)
    operator.process(table, BatchInput(batch, _rows(batch)))
    table.memory.close()


def _in_other_process(call: Callable[..., None], *arguments: Any) -> None:
    process = multiprocessing.get_context("spawn").Process(target=call, args=arguments)
    process.start()
    process.join(60)
    assert process.exitcode == 0


def test_a_table_written_by_one_process_is_found_whole_by_the_next(tmp_path: Path) -> None:
    operator = _operator()
    private = StateTable(operator.layout, Memory())
    for batch in range(2):
        _in_other_process(_grow_shared_table, str(tmp_path), batch)
        operator.process(private, BatchInput(batch, _rows(batch)))
        found = StateTable(operator.layout, Memory(tmp_path), is_new=False)
        assert found.open_windows == private.open_windows > 500
        assert table_states(operator, found) == table_states(operator, private)
        found.memory.close()


def test_two_tables_over_the_same_files_see_the_same_windows(tmp_path: Path) -> None:
    operator = _operator()
    writer = StateTable(operator.layout, Memory(tmp_path))
    operator.process(writer, BatchInput(0, _rows(0)))
    reader = StateTable(operator.layout, Memory(tmp_path), is_new=False)
    assert table_states(operator, reader) == table_states(operator, writer)
    operator.process(writer, BatchInput(1, batch_of(_SCHEMA, [("key 0", "newest")])))
    states = table_states(operator, reader)
    assert states[("key 0",), None]["last.value"] == "newest"


def test_private_memory_is_not_shared_with_a_forked_process() -> None:
    region = Memory().region("any", 100)
    region.bytes[0] = 1
    child = os.fork()
    if child == 0:
        region.bytes[0] = 2
        os._exit(0)
    os.waitpid(child, 0)
    assert region.bytes[0] == 1


@pytest.mark.parametrize("is_file", [False, True])
def test_growing_keeps_the_bytes_and_adds_zeros(tmp_path: Path, is_file: bool) -> None:
    region = Memory(tmp_path if is_file else None).region("any", 10)
    assert region.size == PAGE
    region.bytes[:] = np.arange(PAGE, dtype=np.uint64).astype(np.uint8)
    region.grow(10)
    assert region.size == PAGE
    region.grow(3 * PAGE + 1)
    assert region.size == 4 * PAGE
    assert region.bytes[:PAGE].tolist() == [n % 256 for n in range(PAGE)]
    assert not region.bytes[PAGE:].any()
    assert region.view("<u8", 2, offset=8).tolist() == [0x0F0E0D0C0B0A0908, 0x1716151413121110]


def test_files_are_as_large_as_their_regions_and_private_to_the_user(tmp_path: Path) -> None:
    memory = Memory(tmp_path)
    memory.region("slots", 3 * PAGE).grow(5 * PAGE)
    memory.region("index", 1)
    assert memory.size == 6 * PAGE
    assert (tmp_path / "slots").stat().st_size == 5 * PAGE
    assert (tmp_path / "slots").stat().st_mode & 0o777 == 0o600
    memory.close()


def test_space_is_allocated_before_it_is_used(tmp_path: Path) -> None:
    Memory(tmp_path).region("slots", 64 * PAGE)
    assert (tmp_path / "slots").stat().st_blocks * 512 >= 64 * PAGE


@pytest.mark.parametrize(
    ("code", "error", "text"),
    [
        (errno.ENOSPC, CacheFull, "No room for 8,192 bytes"),
        (errno.EDQUOT, CacheFull, "No room for 8,192 bytes"),
        (errno.EIO, StorageError, "cannot grow"),
    ],
)
def test_a_disk_that_refuses_to_grow_is_an_error_that_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int, error: type[Exception], text: str
) -> None:
    region = Memory(tmp_path).region("slots", PAGE)
    region.bytes[:] = 7

    def refuse(*_: Any) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, "posix_fallocate", refuse)
    with pytest.raises(error, match=text):
        region.grow(2 * PAGE)
    assert region.size == PAGE
    assert region.bytes.all(), "what was there is still there"


def test_a_region_that_cannot_be_made_leaves_no_file_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "posix_fallocate", refuse)
    before = set(os.listdir("/proc/self/fd"))
    for _ in range(5):
        with pytest.raises(CacheFull):
            Region(tmp_path / "slots", PAGE)
    assert set(os.listdir("/proc/self/fd")) == before


def test_a_table_that_cannot_grow_still_counts_what_it_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    operator = _operator()
    table = StateTable(operator.layout, Memory(tmp_path))
    capacity = table.header.slot_capacity

    def refuse(*_: Any) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "posix_fallocate", refuse)
    rows = batch_of(_SCHEMA, [(f"key {n}", "") for n in range(5000)])
    with pytest.raises(CacheFull):
        operator.process(table, BatchInput(0, rows))
    assert table.header.slot_capacity == capacity
