"""Exact comparison: rows as multisets, bits of floats, scales of decimals, types of columns.

NaN equals NaN, whatever its bits; -0.0 differs from 0.0, True from 1, and 1.0 from 1.00.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from typing import Any

import pyarrow as pa

from tests.support.folds import unscaled
from tests.support.oracle import Identity, Oracle, OracleOutcome, Row
from tests.support.plain import plain_rows
from trailmark.operators.aggregate import Aggregate
from trailmark.operators.protocol import Outcome, State
from trailmark.records import KIND, START
from trailmark.state.table import StateTable


def exact(value: Any) -> Any:
    """A stand-in that is equal for values that are the same, and for no others."""
    if isinstance(value, float):
        return "nan" if math.isnan(value) else ("float", value.hex())
    if isinstance(value, Decimal):
        return ("decimal", value.as_tuple())
    if isinstance(value, bool):
        return ("bool", value)
    if isinstance(value, list):
        return ("list", *map(exact, value))
    if isinstance(value, dict):
        return ("struct", *((name, exact(each)) for name, each in value.items()))
    return value


def multiset(rows: Iterable[Row], names: Sequence[str]) -> Counter[tuple[Any, ...]]:
    return Counter(tuple(exact(row[name]) for name in names) for row in rows)


def assert_same_rows(found: pa.RecordBatch, expected: Sequence[Row], what: str) -> None:
    names = found.schema.names
    for row in expected:
        assert sorted(row) == sorted(names), f"{what}: columns {names}, expected {sorted(row)}"
    have, want = multiset(plain_rows(found), names), multiset(expected, names)
    assert have == want, (
        f"{what}: of columns {names}\n  only found:    {dict(have - want)}\n"
        f"  only expected: {dict(want - have)}"
    )


def assert_same_outcome(found: Outcome, expected: OracleOutcome, oracle: Oracle, what: str) -> None:
    """Results, late rows and counts of a batch are those of the oracle."""
    found.results.validate(full=True)
    types = {field.name: str(field.type) for field in found.results.schema}
    assert types == oracle.result_types(), f"{what}: types of results"
    assert_same_rows(found.results, expected.results, f"{what}: results")
    assert found.late_rows == expected.late_rows, f"{what}: number of late rows"
    assert found.late_updates == expected.late_updates, f"{what}: number of late updates"
    assert found.null_times == expected.null_times, f"{what}: number of null times"
    if oracle.keeps_late_rows and expected.late:
        assert found.late is not None, f"{what}: late rows are kept"
        assert_same_rows(found.late, expected.late, f"{what}: late rows")
    else:
        assert found.late is None, f"{what}: late rows are not kept"


def footprint_states(operator: Aggregate, footprints: pa.RecordBatch) -> dict[Identity, Row]:
    """Footprint rows by the window they describe, in the order of the rows.

    A state is a number whatever type it is logged as: decimals are taken in units of their last
    digit. Why a footprint was written is left out.
    """
    keys = [field[0] for field in operator.describe()["by"]]
    wide = operator.widen(footprints, "footprints")
    scales = {
        field.name: field.type.scale
        for field in wide.schema
        if pa.types.is_decimal(field.type) and field.name not in keys
    }
    states: dict[Identity, Row] = {}
    for row in plain_rows(wide):
        identity = (tuple(row[name] for name in keys), row.get(START))
        assert identity not in states, f"window {identity} is there twice"
        for name, scale in scales.items():
            row[name] = unscaled(row[name], scale)
        states[identity] = {
            name: value for name, value in row.items() if name not in (*keys, START, KIND)
        }
    return states


def table_states(operator: Aggregate, table: State) -> dict[Identity, Row]:
    """The open windows of a table, as the oracle describes them."""
    assert isinstance(table, StateTable)
    footprints = operator.footprints(table, table.slots(), 0)
    footprints.validate(full=True)
    return footprint_states(operator, footprints)


def assert_same_states(
    found: Mapping[Identity, Row], expected: Mapping[Identity, Row], what: str
) -> None:
    missing, extra = set(expected) - set(found), set(found) - set(expected)
    assert not missing, f"{what}: windows not there: {missing}"
    assert not extra, f"{what}: windows that should not be there: {extra}"
    for identity, want in expected.items():
        have = found[identity]
        assert sorted(have) == sorted(want), f"{what}: fields of window {identity}"
        differing = {
            name: (have[name], want[name])
            for name in want
            if exact(have[name]) != exact(want[name])
        }
        assert not differing, f"{what}: window {identity}, found and expected: {differing}"
