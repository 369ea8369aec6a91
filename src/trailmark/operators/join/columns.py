"""The columns of a join's results: the keys, then those of the left and of the right side."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from trailmark.errors import SettingError
from trailmark.operators.join.arguments import LEFT, RIGHT, SIDES
from trailmark.operators.user_code import joined

#: Names the side of a late tuple.
LATE_SIDE = "$side"


class PairColumns:
    """Puts rows of both sides together.

    A name that both sides have, other than a key, gets the suffix of its side.

    Attributes
    ----------
    schema
        The columns of the results.
    late
        The columns of late tuples: which side each is of, and those of the results.
    """

    def __init__(
        self,
        schemas: tuple[pa.Schema, pa.Schema],
        keys: Sequence[str],
        suffixes: tuple[str, str],
    ) -> None:
        self._keys = list(keys)
        self._of_sides = [[f for f in schema if f.name not in self._keys] for schema in schemas]
        names = [{field.name for field in fields} for fields in self._of_sides]
        twice = names[LEFT] & names[RIGHT]
        shown = [
            pa.field(field.name + (suffix if field.name in twice else ""), field.type)
            for fields, suffix in zip(self._of_sides, suffixes, strict=True)
            for field in fields
        ]
        of_keys = [pa.field(name, schemas[LEFT].field(name).type) for name in self._keys]
        self.schema = pa.schema([*of_keys, *shown])
        self.late = pa.schema([pa.field(LATE_SIDE, pa.string()), *self.schema])
        _check_distinct(self.schema.names, suffixes)

    def pairs(self, left: pa.RecordBatch, right: pa.RecordBatch) -> pa.RecordBatch:
        """Rows of both sides, pair by pair."""
        columns = [left.column(name) for name in self._keys]
        for fields, rows in zip(self._of_sides, (left, right), strict=True):
            columns += [rows.column(field.name) for field in fields]
        return pa.RecordBatch.from_arrays(columns, schema=self.schema)

    def alone(self, side: int, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Rows of one side that have no partner."""
        columns = [rows.column(name) for name in self._keys]
        for place, fields in enumerate(self._of_sides):
            columns += [
                rows.column(field.name) if place == side else pa.nulls(rows.num_rows, field.type)
                for field in fields
            ]
        return pa.RecordBatch.from_arrays(columns, schema=self.schema)

    def late_rows(self, of_sides: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
        """Late rows of both sides, as they would have come out without a partner."""
        parts = []
        for side, (name, rows) in enumerate(zip(SIDES, of_sides, strict=True)):
            names = pa.repeat(pa.scalar(name), rows.num_rows)
            columns = [names, *self.alone(side, rows).columns]
            parts.append(pa.RecordBatch.from_arrays(columns, schema=self.late))
        return joined(parts, self.late)


def _check_distinct(names: Sequence[str], suffixes: tuple[str, str]) -> None:
    taken = sorted({name for name in names if names.count(name) > 1})
    if taken:
        raise SettingError(
            f"Two columns of the results would be called {taken[0]!r}.",
            where="suffixes",
            fix=f"Rename the column on one side, or use other suffixes than {list(suffixes)}.",
        )
