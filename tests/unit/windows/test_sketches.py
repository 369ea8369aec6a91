"""Approximate distinct counts: registers against plain Python, estimates against exact counts."""

from __future__ import annotations

import random
import tracemalloc
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tests.support.compare import exact, footprint_states
from tests.support.folds import make_fold
from tests.support.plain import batch_of
from tests.support.xxhash import xxhash64
from tests.unit.windows.test_functions import result_of
from trailmark.errors import SettingError, UnsupportedType
from trailmark.kernel.columns import numbers
from trailmark.operators.aggregate import Aggregate
from trailmark.operators.protocol import BatchInput
from trailmark.state.memory import Memory
from trailmark.state.table import StateTable
from trailmark.windows import functions as f
from trailmark.windows.functions import function_from_description
from trailmark.windows.hashes import hashed
from trailmark.windows.sketches import estimates, register_bits
from trailmark.windows.spec import CountWindow

_NAN = float("nan")
_MOST = 10**37


def test_hashes_are_xxh64_with_the_seed_of_spark() -> None:
    """The first is in Spark's documentation of xxhash64, the second in that of XXH64."""
    assert hashed(pa.array(["ABC"])).to_pylist() == [4105715581806190027]
    assert xxhash64(b"", 0) == 0xEF46DB3751D8E999
    texts = [
        bytes(range(97, 97 + length % 26)).decode() * (1 + length // 26) for length in range(90)
    ]
    found = hashed(pa.array(["hidden", *texts, None]).slice(1))
    signed = [xxhash64(text.encode()) for text in texts]
    assert found.to_pylist() == [*(each - (each >> 63 << 64) for each in signed), None]


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        (pa.bool_(), [True, None, False]),
        (pa.int8(), [-128, 127, None]),
        (pa.int16(), [-1, 300]),
        (pa.uint16(), [65_535, 0]),
        (pa.int32(), [-(2**31), 7, None, 7]),
        (pa.uint32(), [2**32 - 1, 0]),
        (pa.int64(), [-(2**63), 2**63 - 1, 0]),
        (pa.float32(), [0.5, -0.0, 0.0, _NAN, None]),
        (pa.float64(), [1e300, -0.0, 0.0, _NAN, -_NAN, None]),
        (pa.date32(), [5, -5, None]),
        (pa.timestamp("us", "UTC"), [-1, 1 << 50, None]),
        (pa.string(), ["", "x", None, "ä" * 40, "x"]),
        (pa.large_string(), ["x", None]),
        (pa.decimal128(18, 2), [Decimal("-1.10"), Decimal("1.1"), None]),
        (
            pa.decimal128(38, 0),
            [Decimal(each) for each in (0, -1, 127, 128, -128, -129, 1 << 63, _MOST, -_MOST)],
        ),
    ],
    ids=str,
)
@pytest.mark.parametrize("rsd", [0.39, 0.05])
def test_registers_are_those_of_plain_python(kind: pa.DataType, values: Any, rsd: float) -> None:
    schema = pa.schema([("k", pa.int8()), ("v", kind)])
    call = f.approx_count_distinct("v", rsd)
    window = CountWindow(len(values) + 1, len(values) + 1)
    operator = Aggregate(schema, by="k", window=window, values={"x": call})
    table = StateTable(operator.layout, Memory())
    fold = make_fold(call, schema)
    for value in values:
        fold.add({"v": value})
    for batch, part in enumerate((values[:2], values[2:])):
        rows = batch_of(schema, [(1, value) for value in part], offset=3)
        operator.process(table, BatchInput(batch, rows))
    footprints = operator.footprints(table, table.slots(), 0)
    assert not operator.trouble(footprints, 1)
    (found,) = footprint_states(operator, footprints).values()
    assert exact(found["x.registers"]) == exact(fold.state()["registers"])
    assert result_of(call, kind, values, 2).to_pylist() == [fold.result()]


@pytest.mark.parametrize("rsd", [0.2, 0.05])
def test_estimates_are_as_near_to_exact_counts_as_was_promised(rsd: float) -> None:
    """For numbers of values below, between and above the limits at which they are read otherwise.

    The deviation of 300 windows is itself within some 13 % of what it would be in the long run, at
    three times its own deviation."""
    schema = pa.schema([("k", pa.int32()), ("v", pa.int64())])
    values = {"about": f.approx_count_distinct("v", rsd), "exactly": f.count_distinct("v")}
    windows, registers = 300, 1 << register_bits(rsd)
    for each in (1, 10, registers // 2, 2 * registers, 3 * registers, 4 * registers, 8 * registers):
        rows = windows * each
        window = CountWindow(each, each)
        operator = Aggregate(schema, by="k", window=window, values=values)
        table = StateTable(operator.layout, Memory())
        keys = np.tile(np.arange(windows, dtype=np.int32), each)
        batch = pa.record_batch(
            [pa.array(keys), pa.array(np.arange(rows) * 7 + each)], schema=schema
        )
        found = operator.process(table, BatchInput(0, batch)).results
        about, exactly = (numbers(found.column(name)) for name in values)
        assert len(about) == windows
        assert (exactly == each).all()
        off = about / exactly - 1
        assert np.sqrt((off**2).mean()) <= 1.13 * rsd, f"{each} values"
        assert abs(off.mean()) <= 3 * rsd / np.sqrt(windows) + 0.5 / each, f"{each} values"


def test_a_batch_takes_memory_for_its_windows_not_for_its_tuples() -> None:
    """Sketches are large: room for one of every tuple would be gigabytes."""
    schema = pa.schema([("k", pa.int64()), ("v", pa.int64())])
    values = {"x": f.approx_count_distinct("v", 0.005)}
    operator = Aggregate(schema, by="k", window=CountWindow(1 << 20, 1 << 20), values=values)
    table = StateTable(operator.layout, Memory())
    numbers = pa.array(np.arange(50_000))
    tracemalloc.start()
    for batch in range(2):
        keys = pa.array(np.arange(50_000) % (3 + 600 * batch))
        rows = pa.record_batch([keys, numbers], schema=schema)
        operator.process(table, BatchInput(batch, rows))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert table.header.open_windows == 603
    assert peak < 400 << 20


def test_an_empty_window_has_no_values() -> None:
    assert result_of(f.approx_count_distinct("v"), pa.int64(), [None, None], 1).to_pylist() == [0]


def test_any_bytes_that_a_footprint_may_hold_are_read() -> None:
    """A footprint is checksummed, not believed: registers beyond the greatest count as that."""
    wild = [random.Random(1).randbytes(512), b"\xff" * 512]
    found = estimates(np.frombuffer(b"".join(wild), np.uint8).reshape(2, 512))
    assert np.isfinite(found).all()


@pytest.mark.parametrize("rsd", [0.4, 0.004, 0, -1, _NAN, "0.05", None, True], ids=str)
def test_a_deviation_that_cannot_be_kept_is_refused(rsd: Any) -> None:
    with pytest.raises(SettingError, match=r"rsd lies between 0\.005 and 0\.39"):
        f.approx_count_distinct("v", rsd)


def test_a_type_without_a_hash_is_refused() -> None:
    with pytest.raises(UnsupportedType, match="approx_count_distinct cannot take column 'v'"):
        result_of(f.approx_count_distinct("v"), pa.list_(pa.int8()), [[1]], 1)


def test_a_function_is_made_again_from_what_it_says_of_itself() -> None:
    for call in (f.approx_count_distinct("v"), f.approx_count_distinct("v", 0.01)):
        assert function_from_description(call.describe()) == call
    without = {**f.approx_count_distinct("v").describe()}
    del without["rsd"]
    for wrong in (without, {**f.count("v").describe(), "rsd": 0.05}):
        with pytest.raises(ValueError, match="with or without a deviation"):
            function_from_description(wrong)
