"""The columns of a barrier's results: the keys, then those of each input."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pyarrow as pa

from trailmark.errors import SettingError


class TogetherColumns:
    """Puts rows of all inputs together.

    A name that several inputs have, other than a key, gets the name of its input as a suffix.

    Attributes
    ----------
    schema
        The columns of the results.
    """

    def __init__(self, schemas: Mapping[str, pa.Schema], keys: Sequence[str]) -> None:
        self._keys = list(keys)
        self._own = [[f for f in each if f.name not in self._keys] for each in schemas.values()]
        everything = [field.name for fields in self._own for field in fields]
        shown = [
            pa.field(f"{f.name}_{name}" if everything.count(f.name) > 1 else f.name, f.type)
            for name, fields in zip(schemas, self._own, strict=True)
            for f in fields
        ]
        first = next(iter(schemas.values()))
        self.schema = pa.schema([*(pa.field(k, first.field(k).type) for k in self._keys), *shown])
        taken = [name for name in self.schema.names if self.schema.names.count(name) > 1]
        if taken:
            raise SettingError(
                f"Two columns of the results would be called {taken[0]!r}.",
                where="inputs",
                fix="Rename the column of one input, or the input.",
            )

    def together(self, rows: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
        """Rows of all inputs side by side."""
        columns = [rows[0].column(name) for name in self._keys]
        for fields, each in zip(self._own, rows, strict=True):
            columns += [each.column(field.name) for field in fields]
        return pa.RecordBatch.from_arrays(columns, schema=self.schema)
