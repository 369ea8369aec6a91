"""The rows of an operator's logs as readers see them, made from what the logs say of themselves."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Literal, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from trailmark.errors import SettingError
from trailmark.log import OperatorMeta, Segment
from trailmark.records import KIND, START, FootprintKind, FrameKind, Stream
from trailmark.values import dataclass
from trailmark.windows.spec import TimeWindow, window_from_description

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
    window = window_from_description(meta.operator["window"])
    time_column = window.column if isinstance(window, TimeWindow) else None
    if records in ("input", "late"):
        is_input = records == "input"
        kind = FrameKind.INPUT if is_input else FrameKind.LATE
        stream = Stream.INPUT if is_input else Stream.OUTPUT
        plain = _Plain(kind)
        return RowsOfKind(stream, (kind,), meta.input_schema, time_column, plain.tables)
    results = _Results(meta)
    if records == "results":
        kinds: tuple[FrameKind, ...] = (FrameKind.RESULTS,)
        return RowsOfKind(Stream.OUTPUT, kinds, results.schema, None, results.tables)
    everything = _Everything(results)
    kinds = (FrameKind.RESULTS, FrameKind.FOOTPRINTS)
    return RowsOfKind(Stream.OUTPUT, kinds, everything.schema, None, everything.tables)


class _Plain:
    """Rows as they are logged."""

    def __init__(self, kind: FrameKind) -> None:
        self._kind = kind

    def tables(self, segment: Segment) -> Iterator[pa.Table]:
        table = segment.table(self._kind)
        if table is not None:
            yield table


class _Results:
    """Keys, the bounds of time windows as a struct (Spark's own form), and values."""

    def __init__(self, meta: OperatorMeta) -> None:
        fields = list(meta.result_schema)
        names = meta.result_schema.names
        self._keys = [str(each[0]) for each in meta.operator["by"]]
        self.bounds: pa.DataType | None = None
        self._size_us = 0
        window = window_from_description(meta.operator["window"])
        if isinstance(window, TimeWindow):
            if "window" in names:
                raise SettingError(
                    "The operator has a column of its own named window, as the bounds are.",
                    where="records",
                    fix="Use trailmark log PATH --records.",
                )
            at = names.index("window_start")
            kind = fields[at].type
            self.bounds = pa.struct([pa.field("start", kind), pa.field("end", kind)])
            self._size_us = window.size
            fields[at : at + 2] = [pa.field("window", self.bounds)]
        self.schema = pa.schema(fields)

    @property
    def keys(self) -> Sequence[str]:
        """Names of the key columns."""
        return self._keys

    def tables(self, segment: Segment) -> Iterator[pa.Table]:
        logged = segment.table(FrameKind.RESULTS)
        if logged is not None:
            yield self.shown(logged)

    def shown(self, logged: pa.Table) -> pa.Table:
        """Logged results as users see them."""
        columns = [
            self.windows(logged) if field.name == "window" and self.bounds else logged[field.name]
            for field in self.schema
        ]
        return pa.Table.from_arrays(columns, schema=self.schema)

    def windows(self, logged: pa.Table) -> pa.Array:
        """The bounds of windows, from their starts."""
        assert self.bounds is not None
        starts = logged[START].combine_chunks().cast(pa.int64())
        ends = pc.add(starts, pa.scalar(self._size_us, pa.int64()))
        kind = self.bounds.field(0).type
        return pa.StructArray.from_arrays(
            [starts.view(kind), ends.view(kind)], fields=list(self.bounds)
        )


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
        results = segment.table(FrameKind.RESULTS)
        if results is not None:
            yield self._table(segment, self._results.shown(results), "result", None)
        footprints = segment.table(FrameKind.FOOTPRINTS)
        if footprints is None:
            return
        kinds = footprints[KIND].combine_chunks()
        names = pa.array([kind.name.lower() for kind in FootprintKind])
        shown = {name: footprints[name] for name in self._results.keys}
        left_out = {*self._results.keys, KIND}
        if self._results.bounds is not None:
            shown["window"] = self._results.windows(footprints)
            left_out.add(START)
        state = footprints.select([n for n in footprints.schema.names if n not in left_out])
        yield self._table(segment, pa.table(shown), names.take(kinds), _as_map(state))

    def _table(
        self, segment: Segment, rows: pa.Table, kind: str | pa.Array, state: pa.Array | None
    ) -> pa.Table:
        count = rows.num_rows
        footer = segment.footer
        known = {
            "kind": pa.repeat(kind, count) if isinstance(kind, str) else kind,
            "batch": pa.repeat(pa.scalar(footer.batch, pa.int64()), count),
            "bucket": pa.repeat(pa.scalar(footer.identity.bucket, pa.int32()), count),
            "open_windows": pa.repeat(
                pa.scalar(int(footer.attributes["open_windows"]), pa.int64()), count
            ),
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
