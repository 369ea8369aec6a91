"""Where time windows begin and end, in each of the forms that results have it in."""

from __future__ import annotations

import pyarrow as pa

from trailmark.kernel.columns import arrow_fixed, numbers
from trailmark.values import dataclass
from trailmark.windows.spec import TimeWindow, Window

#: The two columns.
BOUNDS = ("window_start", "window_end")


@dataclass(frozen=True, slots=True)
class WindowBounds:
    """The bounds of an operator's windows.

    A log holds the starts alone, as numbers. The engine gives two columns behind the keys. Spark
    and readers of logs get one, a struct, as Spark's own ``window()`` has it.

    Parameters
    ----------
    place
        The column of the results that comes first of the two: how many keys there are.
    size_us
        From the start of a window to its end.
    kind
        Type of both.
    name
        Of the one column.
    """

    place: int
    size_us: int
    kind: pa.DataType
    name: str = "window"

    @classmethod
    def of(cls, window: Window, schema: pa.Schema, keys: int) -> WindowBounds | None:
        """The bounds of windows over a schema; None if they are windows of a count of tuples."""
        if not isinstance(window, TimeWindow):
            return None
        zone = schema.field(window.column).type.tz
        return cls(keys, window.size, pa.timestamp("us", tz=zone))

    @property
    def fields(self) -> list[pa.Field]:
        """The two columns."""
        return [pa.field(name, self.kind) for name in BOUNDS]

    @property
    def field(self) -> pa.Field:
        """The one column."""
        return pa.field(self.name, pa.struct([("start", self.kind), ("end", self.kind)]))

    def columns(self, starts: pa.Array) -> list[pa.Array]:
        """The two columns, from the starts as a log holds them."""
        ends = arrow_fixed(numbers(starts) + self.size_us, self.kind)
        return [starts.view(self.kind), ends]

    def column(self, starts: pa.Array) -> pa.Array:
        """The one column, likewise."""
        return pa.StructArray.from_arrays(self.columns(starts), fields=list(self.field.type))

    def joined_schema(self, schema: pa.Schema) -> pa.Schema:
        """The columns of results when the two of them are one."""
        fields = list(schema)
        fields[self.place : self.place + 2] = [self.field]
        return pa.schema(fields)

    def joined(self, results: pa.RecordBatch) -> pa.RecordBatch:
        """Results in which the two columns are one."""
        both = slice(self.place, self.place + 2)
        columns = list(results.columns)
        columns[both] = [pa.StructArray.from_arrays(columns[both], fields=list(self.field.type))]
        return pa.RecordBatch.from_arrays(columns, schema=self.joined_schema(results.schema))
