"""The rows of an operator's logs as readers see them, made from what the logs say of themselves."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import pyarrow as pa
from pyarrow import compute

from trailmark.checkpoint.account import Account
from trailmark.errors import SettingError
from trailmark.log import OperatorMeta, Segment
from trailmark.operators.kinds import form_of
from trailmark.operators.logged import INPUT, LoggedForm
from trailmark.records import KIND, FootprintKind, FrameKind, Stream
from trailmark.streams.view import STATE
from trailmark.values import dataclass

#: Records that are asked for by name, beside those of the inputs.
_RESULTS, _ALL, _LATE = "results", "all", "late"

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


def rows_of_kind(meta: OperatorMeta, records: str) -> RowsOfKind:
    """How to read one kind of records of an operator."""
    form = form_of(meta)
    _check_known(form, records)
    for (name, kind), port in zip(form.inputs.items(), form.ports, strict=True):
        if name == records:
            return _plain_rows(form, Stream.INPUT, kind, port.schema, port.event_time)
    if records == _LATE:
        late = (form.late_schema, form.late_time)
        return _plain_rows(form, Stream.OUTPUT, FrameKind.LATE, *late)
    _check_distinct(form)
    if records == _RESULTS:
        return _results(form, FrameKind.RESULTS)
    everything = _Everything(form)
    kinds = (FrameKind.RESULTS, FrameKind.FOOTPRINTS)
    return RowsOfKind(Stream.OUTPUT, kinds, everything.schema, None, everything.tables)


def tentative_results(meta: OperatorMeta) -> RowsOfKind:
    """How to read the tentative results of an operator."""
    return _results(form_of(meta), FrameKind.TENTATIVE)


def _results(form: LoggedForm, kind: FrameKind) -> RowsOfKind:
    results = _Results(form, kind)
    return RowsOfKind(Stream.OUTPUT, (kind,), form.shown_schema, None, results.tables)


def _check_known(form: LoggedForm, records: str) -> None:
    known = (_RESULTS, _ALL, *form.inputs, _LATE)
    if records in known:
        return
    what = f"{records!r} are no records of an operator."
    if records == INPUT:
        what = f"The operator has {len(form.ports)} inputs, whose rows have columns of their own."
    raise SettingError(what, where="records", fix=f"Use one of {', '.join((*known, STATE))}.")


def _plain_rows(
    form: LoggedForm, stream: Stream, kind: FrameKind, schema: pa.Schema, time: str | None
) -> RowsOfKind:
    plain = _Plain(form, kind)
    return RowsOfKind(stream, (kind,), schema, time, plain.tables)


def _check_distinct(form: LoggedForm) -> None:
    """Columns that are shown otherwise than they are logged may take a name that is there."""
    names = form.shown_schema.names
    taken = sorted({name for name in names if names.count(name) > 1})
    if taken:
        raise SettingError(
            f"The operator has a column of its own named {taken[0]}, as the bounds are.",
            where="records",
            fix="Use trailmark log PATH --records.",
        )


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
    """Results as readers see them."""

    def __init__(self, form: LoggedForm, kind: FrameKind) -> None:
        self._form = form
        self._kind = kind

    def tables(self, segment: Segment) -> Iterator[pa.Table]:
        logged = self._form.table(segment, self._kind)
        if logged is not None:
            yield self._form.shown(logged)


class _Everything:
    """Results and footprints together: what each is, where it lies, and the state it holds."""

    def __init__(self, form: LoggedForm) -> None:
        self._form = form
        shown = form.shown_schema
        values = [field for field in shown if field.name not in form.pieces.names]
        self.schema = pa.schema(
            [
                pa.field("kind", pa.string()),
                pa.field("batch", pa.int64()),
                pa.field("bucket", pa.int32()),
                pa.field("open_windows", pa.int64()),
                *form.pieces,
                *values,
                pa.field("state", _STATE),
            ]
        )
        taken = {"kind", "batch", "bucket", "open_windows", "state"}
        names = {*shown.names, *form.pieces.names}
        clash = sorted(taken & names)
        clash += [f.name for f in form.pieces if not _fits(f, shown)]
        if clash:
            raise SettingError(
                f"The operator has columns of its own named {', '.join(clash)}, as all records do.",
                where="records",
                fix="Read the results, or use trailmark log PATH --records.",
            )

    def tables(self, segment: Segment) -> Iterator[pa.Table]:
        results = self._form.table(segment, FrameKind.RESULTS)
        if results is not None:
            rows = self._form.shown(results)
            yield self._table(segment, rows, rows.num_rows, "result", None)
        footprints = self._form.table(segment, FrameKind.FOOTPRINTS)
        if footprints is None:
            return
        kinds = footprints[KIND].combine_chunks()
        names = pa.array([kind.name.lower() for kind in FootprintKind])
        pieces, state = self._form.shown_pieces(footprints)
        count = footprints.num_rows
        yield self._table(segment, pa.table(pieces), count, names.take(kinds), _as_map(state))

    def _table(
        self,
        segment: Segment,
        rows: pa.Table,
        count: int,
        kind: str | pa.Array,
        state: pa.Array | None,
    ) -> pa.Table:
        """So many records; a table without columns has no rows to count."""
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


def _fits(piece: pa.Field, results: pa.Schema) -> bool:
    """Whether results have no other column of this name."""
    places = results.get_all_field_indices(piece.name)
    return all(results.field(place).type == piece.type for place in places)


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
    if pa.types.is_map(column.type):
        keys, items = _as_text(column.keys), _as_text(column.items).fill_null("null")
        entries = compute.binary_join_element_wise(keys, items, ": ")
        lists = pa.ListArray.from_arrays(column.offsets, entries)
        return _joined(lists, "{", "}")
    if pa.types.is_large_list(column.type) or pa.types.is_fixed_size_list(column.type):
        column = column.cast(pa.list_(column.type.value_field))
    if pa.types.is_list(column.type):
        elements = _as_text(column.values).fill_null("null")
        text = _joined(pa.ListArray.from_arrays(column.offsets, elements), "[", "]")
        return compute.if_else(column.is_valid(), text, pa.scalar(None, pa.string()))
    if pa.types.is_struct(column.type):
        return _struct_as_text(column)
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


def _struct_as_text(column: pa.StructArray) -> pa.Array:
    """All fields of each value, by name."""
    fields = [
        compute.binary_join_element_wise(f"{field.name}: ", _as_text(each).fill_null("null"), "")
        for field, each in zip(column.type, column.flatten(), strict=True)
    ]
    inner = compute.binary_join_element_wise(*fields, ", ") if fields else pa.scalar("")
    text = compute.binary_join_element_wise("{", inner, "}", "")
    return compute.if_else(column.is_valid(), text, pa.scalar(None, pa.string()))


def _joined(lists: pa.ListArray, first: str, last: str) -> pa.Array:
    """Lists of texts as one text each."""
    return compute.binary_join_element_wise(first, compute.binary_join(lists, ", "), last, "")
