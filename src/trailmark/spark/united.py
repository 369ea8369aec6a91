"""The rows of several inputs on their way through one shuffle, and apart again in a task.

Spark gives a task the rows of one DataFrame. So those of an operator with several inputs are united
before: the first column tells which input a row is of, then come the keys, which all have, then the
other columns of each, null in the rows of others. The first column of a control row is null.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from trailmark.kernel.columns import chosen_rows, numbers
from trailmark.log import PortRows
from trailmark.operators.protocol import Port
from trailmark.values import dataclass

#: The column that tells which input a row is of.
PORT = "$port"


@dataclass(frozen=True, slots=True)
class United:
    """Inputs whose rows are sent together.

    Parameters
    ----------
    ports
        The inputs.
    keys
        The columns that all of them have, with the same types: what decides about the bucket.
    """

    ports: tuple[Port, ...]
    keys: tuple[str, ...]

    @property
    def schema(self) -> pa.Schema:
        """The columns that are sent; those of the input itself if it is the only one."""
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

    def part(self, rows: pa.RecordBatch) -> PortRows:
        """Rows as they were sent, by input, and in which order they came."""
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
