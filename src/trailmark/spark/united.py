"""The rows of several inputs on their way through one shuffle, and apart again in a task.

Spark gives a task the rows of one DataFrame. So those of an operator with several inputs are united
before: the first column tells which input a row is of, then come the keys, which all have, then the
other columns of each, null in the rows of others. The first column of a control row is null.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from trailmark.errors import TrailmarkError
from trailmark.kernel.columns import chosen_rows, numbers
from trailmark.log import PortRows
from trailmark.operators.protocol import Port
from trailmark.values import dataclass

#: The column that tells which input a row is of, and the one that tells which are tentative.
PORT, TENTATIVE = "$port", "$tentative"


@dataclass(frozen=True, slots=True)
class United:
    """Inputs whose rows are sent together.

    Parameters
    ----------
    ports
        The inputs.
    keys
        The columns that all of them have, with the same types: what decides about the bucket.
    is_marked
        Whether rows may be tentative, which the last column tells.
    """

    ports: tuple[Port, ...]
    keys: tuple[str, ...]
    is_marked: bool = False

    @property
    def schema(self) -> pa.Schema:
        """The columns that are sent: of the only input its own, and the mark if there is one."""
        columns = self.columns
        return columns.append(pa.field(TENTATIVE, pa.bool_())) if self.is_marked else columns

    @property
    def columns(self) -> pa.Schema:
        """The same without the mark."""
        if len(self.ports) == 1:
            return self.ports[0].schema
        first = self.ports[0].schema
        shared = [first.field(name) for name in self.keys]
        own = [
            port.schema.field(name).with_name(self.sent_name(place, name))
            for place, port in enumerate(self.ports)
            for name in self.own_columns(place)
        ]
        return pa.schema([pa.field(PORT, pa.int8()), *shared, *own])

    def own_columns(self, place: int) -> list[str]:
        """The columns of an input besides the keys."""
        return [name for name in self.ports[place].schema.names if name not in self.keys]

    def sent_name(self, place: int, name: str) -> str:
        """What a column of an input is called on the way."""
        return f"${place}:{name}"

    def part_marked(self, rows: pa.RecordBatch, where: str) -> tuple[PortRows, PortRows | None]:
        """Rows as they were sent, by input: those that stand, and where rows are marked the
        tentative ones."""
        if not self.is_marked:
            return self.part(rows), None
        mark = rows.column(TENTATIVE)
        if mark.null_count:
            raise TrailmarkError(
                f"{mark.null_count:,} rows do not say whether they are tentative.",
                where=where,
                fix="Leave the column 'tentative' as the union has made it: a row without a mark "
                "is neither stable nor tentative.",
            )
        is_tentative = mark.to_numpy(zero_copy_only=False)
        rows = rows.select(self.columns.names)
        if not is_tentative.any():
            return self.part(rows), self.part(rows.slice(0, 0))
        return (
            self.part(chosen_rows(rows, ~is_tentative)),
            self.part(chosen_rows(rows, is_tentative)),
        )

    def part(self, rows: pa.RecordBatch) -> PortRows:
        """Rows without a mark, by input, and in which order they came."""
        if len(self.ports) == 1:
            return PortRows((rows,))
        of = numbers(rows.column(0))
        tables = []
        for place, port in enumerate(self.ports):
            sent = [
                name if name in self.keys else self.sent_name(place, name)
                for name in port.schema.names
            ]
            mine = chosen_rows(rows.select(sent), of == place)
            tables.append(pa.RecordBatch.from_arrays(mine.columns, schema=port.schema))
        return PortRows(tuple(tables), of.astype(np.uint8))
