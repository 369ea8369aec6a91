"""Checkpoints of users' objects as bytes: what they are given as, they come back as. Never
pickled: what comes out of a log runs no code."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from trailmark.errors import OperatorError
from trailmark.values import dataclass

_BYTES, _TABLE, _ROWS = 1, 2, 3
FORMS = (_BYTES, _TABLE, _ROWS)
#: What one value of a column of bytes can hold.
_MOST_BYTES = (1 << 31) - 1


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """The state of a user's object: what it was given as, and its bytes."""

    form: int
    data: bytes

    @classmethod
    def of(cls, state: Any, name: str, batch: int) -> Checkpoint:
        """What `get_checkpoint` has returned; refused if it cannot be kept."""
        if isinstance(state, pa.Table | pa.RecordBatch):
            form = _TABLE if isinstance(state, pa.Table) else _ROWS
            data = _arrow_bytes(state)
        elif isinstance(state, bytes | bytearray | memoryview):
            form, data = _BYTES, bytes(state)
        else:
            raise OperatorError(
                f"{name} returned {type(state).__name__}, which is no state that can be kept.",
                where=f"{name}, batch {batch}",
                fix="Return bytes, or an Arrow table or record batch.",
            )
        if len(data) > _MOST_BYTES:
            raise OperatorError(
                f"{name} returned {len(data):,} bytes; at most {_MOST_BYTES:,} can be kept.",
                where=f"{name}, batch {batch}",
                fix="Use more buckets, or a keyed operator, whose state is written in parts.",
            )
        return cls(form, data)

    def restored(self) -> Any:
        """What is handed to `restore_checkpoint`; raises an ``ArrowException``, ``OSError`` or
        ``ValueError`` if it is none."""
        if self.form == _BYTES:
            return self.data
        with pa.ipc.open_stream(self.data) as stream:
            table = stream.read_all()
        table.validate(full=True)
        if self.form == _TABLE:
            return table
        batches = table.to_batches()
        if len(batches) > 1:
            raise ValueError("several record batches in the place of one")
        return batches[0] if batches else pa.RecordBatch.from_pylist([], schema=table.schema)


def _arrow_bytes(rows: pa.Table | pa.RecordBatch) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as stream:
        stream.write(rows)
    data: bytes = sink.getvalue().to_pybytes()
    return data
