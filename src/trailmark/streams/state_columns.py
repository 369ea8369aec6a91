"""The columns of a state as readers see it: a row for every open piece."""

from __future__ import annotations

import pyarrow as pa

from trailmark.errors import SettingError
from trailmark.kernel.columns import contiguous
from trailmark.operators.logged import LoggedForm
from trailmark.operators.protocol import AnyOperator
from trailmark.recovery import NoHistory
from trailmark.state.memory import Memory


class StateColumns:
    """Shows footprints with the full types of the state.

    Where they are of (``batch`` and ``bucket``), the columns of results that say which piece each
    is of, then what the piece holds. Columns that every operator has begin with a $ in the log, and
    are shown without it where the operator has none of that name itself.
    """

    def __init__(self, form: LoggedForm, operator: AnyOperator) -> None:
        self._form = form
        self._operator = operator
        state = operator.open(Memory(), NoHistory())
        empty = operator.footprints(state, state.list_oldest(), 0)
        self.schema: pa.Schema = self._table(empty, 0, 0).schema

    def shown(self, footprints: pa.RecordBatch, batch: int, bucket: int) -> pa.RecordBatch:
        """The footprints of pieces of a bucket at the end of a batch, as readers see them."""
        return contiguous(self._table(footprints, batch, bucket))

    def _table(self, footprints: pa.RecordBatch, batch: int, bucket: int) -> pa.Table:
        wide = self._operator.widen(footprints, f"state at the end of batch {batch}")
        pieces, state = self._form.shown_pieces(pa.Table.from_batches([wide]))
        count = footprints.num_rows
        columns = {
            "$batch": pa.repeat(pa.scalar(batch, pa.int64()), count),
            "$bucket": pa.repeat(pa.scalar(bucket, pa.int32()), count),
            **pieces,
        }
        names = [*columns, *state.schema.names]
        return pa.table([*columns.values(), *state.columns], names=_shown_names(names))


def _shown_names(logged: list[str]) -> list[str]:
    shown = [
        name if name.removeprefix("$") in logged else name.removeprefix("$") for name in logged
    ]
    taken = sorted({name for name in shown if shown.count(name) > 1})
    if taken:
        raise SettingError(
            f"The state would have two columns named {taken[0]!r}.",
            where="records",
            fix="Read records='all', which shows footprints as they were logged.",
        )
    return shown
