"""The rows of several inputs on their way through one shuffle, and apart again in a task.

Spark gives a task the rows of one DataFrame. So those of an operator with several inputs are united
before: the first column tells which input a row is of, then come the keys, which all have, then the
other columns of each, null in the rows of others. The first column of a control row is null.

A column of its own for the mark of tentative rows takes a sixth of a batch's time, most of it where
Spark makes Arrow columns of its rows. So the mark travels in the times of the only input, if they
are instants that leave two bits free: four times the instant, and the mark.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from trailmark.errors import TrailmarkError
from trailmark.kernel.columns import arrow_fixed, chosen_rows, numbers
from trailmark.log import PortRows
from trailmark.operators.protocol import Port
from trailmark.values import dataclass

#: The column that tells which input a row is of, and the one that tells which are tentative.
PORT, TENTATIVE = "$port", "$tentative"
#: A mark in a time: how many marks there are, that of a tentative row, and that of a row without.
MARKS, IS_TENTATIVE, HAS_NO_MARK = 4, 1, 2
#: Beyond this an instant leaves no room for a mark; it stands for none where there is no time.
MOST_US = 2**61


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
        if self.marked_time is not None:
            place = columns.get_field_index(self.marked_time)
            return columns.set(place, pa.field(self.marked_time, pa.int64()))
        return columns.append(pa.field(TENTATIVE, pa.bool_())) if self.is_marked else columns

    @property
    def marked_time(self) -> str | None:
        """The column of times that the mark travels in; None where it has a column of its own."""
        time = self.ports[0].event_time
        if not self.is_marked or len(self.ports) > 1 or time is None or time in self.keys:
            return None
        kind = self.ports[0].schema.field(time).type
        return time if pa.types.is_timestamp(kind) and kind.tz and kind.unit == "us" else None

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
        rows, is_tentative, unmarked = self._without_marks(rows)
        if unmarked:
            raise TrailmarkError(
                f"{unmarked:,} rows do not say whether they are tentative.",
                where=where,
                fix="Leave the column 'tentative' as the union has made it: a row without a mark "
                "is neither stable nor tentative.",
            )
        if not is_tentative.any():
            return self.part(rows), self.part(rows.slice(0, 0))
        return (
            self.part(chosen_rows(rows, ~is_tentative)),
            self.part(chosen_rows(rows, is_tentative)),
        )

    def _without_marks(
        self, rows: pa.RecordBatch
    ) -> tuple[pa.RecordBatch, npt.NDArray[np.bool_], int]:
        """The rows as their inputs have them, which of them are tentative, and how many say
        nothing about that."""
        if self.marked_time is None:
            mark = rows.column(TENTATIVE)
            is_tentative = mark.fill_null(False).to_numpy(zero_copy_only=False)
            return rows.select(self.columns.names), is_tentative, mark.null_count
        place = self.columns.get_field_index(self.marked_time)
        sent = numbers(rows.column(place))
        marks, times = sent & (MARKS - 1), sent >> 2
        is_known = times != -MOST_US
        field = self.columns.field(place)
        column = arrow_fixed(times, field.type, None if is_known.all() else is_known)
        columns = [*rows.columns[:place], column, *rows.columns[place + 1 :]]
        unmarked = int(np.count_nonzero(marks == HAS_NO_MARK))
        whole = pa.RecordBatch.from_arrays(columns, schema=self.columns)
        return whole, marks == IS_TENTATIVE, unmarked

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
