"""Whole numbers are logged as narrow as they are, and come back as they were."""

from __future__ import annotations

from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest

from tests.support.compare import table_states
from trailmark.engine.logs import describe_logs
from trailmark.operators.aggregate import Aggregate
from trailmark.operators.kinds import form_of
from trailmark.operators.protocol import BatchInput
from trailmark.records import FOOTPRINT
from trailmark.state.memory import Memory
from trailmark.state.table import StateTable
from trailmark.windows import functions as f
from trailmark.windows.spec import count_window

_SCHEMA = pa.schema([("k", pa.int64()), ("v", pa.int64())])


def _fed(operator: Aggregate, values: list[int]) -> StateTable:
    """A window for each value, with that value."""
    table = StateTable(operator.layout, Memory())
    rows = pa.record_batch([list(range(len(values))), values], schema=_SCHEMA)
    operator.process(table, BatchInput(0, rows, footprint=0))
    return table


def _loaded(operator: Aggregate, footprints: pa.RecordBatch) -> StateTable:
    table = StateTable(operator.layout, Memory())
    batches = pa.array(np.zeros(footprints.num_rows, dtype=np.int64))
    operator.load(table, footprints.append_column(FOOTPRINT, batches), "out/00000")
    return table


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        ([0, 127, -128], pa.int8()),
        ([*range(-64, 64), 128, 0], pa.int16()),
        ([-129], pa.int16()),
        ([*range(100), 1 << 15], pa.int32()),
        ([-(1 << 31)], pa.int32()),
        ([1 << 31], pa.int64()),
        ([-(1 << 63), *range(200), (1 << 63) - 1], pa.int64()),
    ],
)
def test_numbers_get_the_narrowest_type_that_holds_them(
    values: list[int], kind: pa.DataType
) -> None:
    operator = Aggregate(_SCHEMA, by="k", window=count_window(3), values={"total": f.sum("v")})
    table = _fed(operator, values)
    footprints = operator.footprints(table, table.slots(), len(values))
    column = footprints.column("total.sum")
    assert column.type == kind
    by_key = dict(zip(footprints.column("k").to_pylist(), column.to_pylist(), strict=True))
    assert [by_key[key] for key in range(len(values))] == values
    assert table_states(operator, _loaded(operator, footprints)) == table_states(operator, table)


def test_many_sums_beyond_64_bits_come_back() -> None:
    """More columns than a word has bits, the last ones as wide as the first."""
    most = (1 << 63) - 1
    names = [f"mean{number}" for number in range(80)]
    values = {name: f.avg("v") for name in names}
    operator = Aggregate(_SCHEMA, by="k", window=count_window(9), values=values)
    table = _fed(operator, [most, 5])
    for batch in (1, 2):
        rows = pa.record_batch([[0, 1], [most, 7]], schema=_SCHEMA)
        operator.process(table, BatchInput(batch, rows))
    footprints = operator.footprints(table, table.slots(), 2)
    for name in names:
        found = footprints.column(f"{name}.sum").to_pylist()
        assert sorted(found) == [Decimal(19), Decimal(3 * most)]
    assert table_states(operator, _loaded(operator, footprints)) == table_states(operator, table)


@pytest.mark.parametrize("name", ["total.sum", "another"])
def test_footprints_with_two_columns_of_one_name_are_refused_with_and_without_the_functions(
    name: str,
) -> None:
    operator = Aggregate(_SCHEMA, by="k", window=count_window(3), values={"total": f.sum("v")})
    table = _fed(operator, [1, 2])
    footprints = operator.footprints(table, table.slots(), 2)
    form = form_of(describe_logs(operator, 1))
    numbers = pa.array([1, 2], pa.int8())
    twice = footprints.append_column(name, numbers).append_column(name, numbers)
    for judge in (operator, form):
        assert judge.trouble(footprints, 0) == ""
        assert judge.trouble(twice, 0) != ""
