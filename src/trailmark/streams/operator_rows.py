"""The rows of an operator's logs as readers see them, made from what the logs say of themselves."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Literal, TypeAlias

import numpy as np
import pyarrow as pa

from trailmark.checkpoint.account import Account
from trailmark.errors import SettingError
from trailmark.log import OperatorMeta, Segment
from trailmark.operators.logged import LoggedForm
from trailmark.records import KIND, START, FootprintKind, FrameKind, Stream
from trailmark.values import dataclass
from trailmark.windows.bounds import WindowBounds
from trailmark.windows.spec import TimeWindow

Records: TypeAlias = Literal["results", "all", "input", "late"]
RECORDS: tuple[Records, ...] = ("results", "all", "input", "late")

_STATE = pa.map_(pa.string(), pa.string())


@dataclass(frozen=True, slots=True)
class RowsOfKind:
    """Which log holds the rows that are asked for, their columns, and how to get at them.

    ``frames`` are the kinds of frames whose rows they are, for counting them by the footer.
    """

    stream: Stream
    frames: tuple[FrameKind, ...]
    schema: pa.Schema
    time_column: str | None
    tables: Callable[[Segment], Iterator[pa.Table]]


def rows_of_kind(meta: OperatorMeta, records: Records) -> RowsOfKind:
    """How to read one kind of records of an operator."""
    form = LoggedForm.of(meta)
    time_column = form.window.column if isinstance(form.window, TimeWindow) else None
    if records in ("input", "late"):
        is_input = records == "input"
        kind = FrameKind.INPUT if is_input else FrameKind.LATE
        stream = Stream.INPUT if is_input else Stream.OUTPUT
        plain = _Plain(form, kind)
        return RowsOfKind(stream, (kind,), meta.input_schema, time_column, plain.tables)
    results = _Results(meta, form)
    if records == "results":
        kinds: tuple[FrameKind, ...] = (FrameKind.RESULTS,)
        return RowsOfKind(Stream.OUTPUT, kinds, results.schema, None, results.tables)
    everything = _Everything(results)
    kinds = (FrameKind.RESULTS, FrameKind.FOOTPRINTS)
    return RowsOfKind(Stream.OUTPUT, kinds, everything.schema, None, everything.tables)


class _Plain:
    """Rows as they are logged."""

    def __init__(self, form: LoggedForm, kind: FrameKind) -> None:
        self._form = form
        self._kind = kind

    def tables(self, segment: Segment) -> Iterator[pa.Table]:
        table = self._form.table(segment, self._kind)
        if table is not None:
            yield table


class _Results:
    """Keys, the bounds of time windows as a struct (Spark's own form), and values."""

    def __init__(self, meta: OperatorMeta, form: LoggedForm) -> None:
        self.form = form
        self.bounds = WindowBounds.of(form.window, meta.input_schema, len(form.keys))
        self.schema = meta.result_schema
        if self.bounds is not None:
            taken = self.bounds.field.name
            if taken in self.schema.names:
                raise SettingError(
                    f"The operator has a column of its own named {taken}, as the bounds are.",
                    where="records",
                    fix="Use trailmark log PATH --records.",
                )
            self.schema = self.bounds.joined_schema(self.schema)

    @property
    def keys(self) -> Sequence[str]:
        """Names of the key columns."""
        return self.form.keys

    def tables(self, segment: Segment) -> Iterator[pa.Table]:
        logged = self.form.table(segment, FrameKind.RESULTS)
        if logged is not None:
            yield self.shown(logged)

    def shown(self, logged: pa.Table) -> pa.Table:
        """Logged results as users see them."""
        columns = {name: logged[name] for name in logged.schema.names} | self.windows(logged)
        return pa.table([columns[name] for name in self.schema.names], schema=self.schema)

    def windows(self, logged: pa.Table) -> dict[str, pa.Array]:
        """The bounds of time windows by the name of their column, from their starts."""
        if self.bounds is None:
            return {}
        starts = logged[START].combine_chunks().cast(pa.int64())
        return {self.bounds.field.name: self.bounds.column(starts)}


class _Everything:
    """Results and footprints together: what each is, where it lies, and the state it holds."""

    def __init__(self, results: _Results) -> None:
        self._results = results
        values = [field for field in results.schema if field.name not in results.keys]
        self.schema = pa.schema(
            [
                pa.field("kind", pa.string()),
                pa.field("batch", pa.int64()),
                pa.field("bucket", pa.int32()),
                pa.field("open_windows", pa.int64()),
                *(results.schema.field(name) for name in results.keys),
                *values,
                pa.field("state", _STATE),
            ]
        )
        taken = {"kind", "batch", "bucket", "open_windows", "state"}
        clash = sorted(taken.intersection(results.schema.names))
        if clash:
            raise SettingError(
                f"The operator has columns of its own named {', '.join(clash)}, as all records do.",
                where="records",
                fix="Read the results, or use trailmark log PATH --records.",
            )

    def tables(self, segment: Segment) -> Iterator[pa.Table]:
        form = self._results.form
        results = form.table(segment, FrameKind.RESULTS)
        if results is not None:
            yield self._table(segment, self._results.shown(results), "result", None)
        footprints = form.table(segment, FrameKind.FOOTPRINTS)
        if footprints is None:
            return
        kinds = footprints[KIND].combine_chunks()
        names = pa.array([kind.name.lower() for kind in FootprintKind])
        shown = {name: footprints[name] for name in self._results.keys}
        shown |= self._results.windows(footprints)
        left_out = {*self._results.keys, KIND}
        if self._results.bounds is not None:
            left_out.add(START)
        state = footprints.select([n for n in footprints.schema.names if n not in left_out])
        yield self._table(segment, pa.table(shown), names.take(kinds), _as_map(state))

    def _table(
        self, segment: Segment, rows: pa.Table, kind: str | pa.Array, state: pa.Array | None
    ) -> pa.Table:
        count = rows.num_rows
        footer = segment.footer
        account = Account.of(footer, segment.origin)
        known = {
            "kind": pa.repeat(kind, count) if isinstance(kind, str) else kind,
            "batch": pa.repeat(pa.scalar(footer.batch, pa.int64()), count),
            "bucket": pa.repeat(pa.scalar(footer.identity.bucket, pa.int32()), count),
            "open_windows": pa.repeat(pa.scalar(account.open_windows, pa.int64()), count),
            "state": pa.nulls(count, _STATE) if state is None else state,
        }
        columns = [
            known[field.name]
            if field.name in known
            else rows[field.name]
            if field.name in rows.schema.names
            else pa.nulls(count, field.type)
            for field in self.schema
        ]
        return pa.Table.from_arrays(columns, schema=self.schema)


def _as_map(rows: pa.Table) -> pa.Array:
    """All columns of each row as a map from name to text, without a loop over rows."""
    names = [name.removeprefix("$") for name in rows.schema.names]
    count, width = rows.num_rows, len(names)
    texts = [_as_text(column.combine_chunks()) for column in rows.columns]
    # Column after column is laid out row after row.
    places = np.arange(count * width).reshape(width, count).T.reshape(-1)
    items = pa.concat_arrays(texts).take(pa.array(places)) if texts else pa.array([], pa.string())
    keys = pa.array(names, pa.string()).take(pa.array(np.tile(np.arange(width), count)))
    offsets = pa.array(np.arange(count + 1, dtype=np.int32) * width)
    return pa.MapArray.from_arrays(offsets, keys, items)


def _as_text(column: pa.Array) -> pa.Array:
    """Values as text; bytes as hexadecimal digits."""
    if pa.types.is_fixed_size_binary(column.type):
        column = column.cast(pa.binary())
    if not pa.types.is_binary(column.type):
        return column.cast(pa.string())
    column = pa.concat_arrays([column])  # without an offset
    validity, offsets, data = column.buffers()
    digits = np.frombuffer(b"0123456789abcdef", dtype=np.uint8)
    values = np.frombuffer(data or b"", dtype=np.uint8)
    text = np.column_stack([digits[values >> 4], digits[values & 15]]).tobytes()
    doubled = np.frombuffer(offsets, dtype=np.int32)[: len(column) + 1] * 2
    buffers = [validity, pa.py_buffer(doubled.tobytes()), pa.py_buffer(text)]
    return pa.Array.from_buffers(pa.string(), len(column), buffers)
