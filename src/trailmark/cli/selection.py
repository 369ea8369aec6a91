"""Which rows of the logs are asked for: by stream, batch, kind and key."""

from __future__ import annotations

import argparse
import json
import re
import struct
from collections.abc import Iterator, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from trailmark.errors import SettingError
from trailmark.log import OperatorMeta, Segment
from trailmark.operators.kinds import form_of
from trailmark.operators.logged import INPUT, LoggedForm
from trailmark.records import OPERATOR_STREAMS, FootprintKind, FrameKind, Stream
from trailmark.values import dataclass

_KIND = "$kind"

#: The frame of each kind of rows that are no input, and the kind of footprint.
_FRAMES: dict[str, tuple[FrameKind, FootprintKind | None]] = {
    "results": (FrameKind.RESULTS, None),
    "open": (FrameKind.FOOTPRINTS, FootprintKind.OPEN),
    "check": (FrameKind.FOOTPRINTS, FootprintKind.CHECK),
    "closed": (FrameKind.CLOSED, None),
    "late": (FrameKind.LATE, None),
}


@dataclass(frozen=True, slots=True)
class KeyValue:
    """A key column and the value that its rows have to have; None stands for null."""

    column: str
    value: pa.Scalar | None

    def matches(self, table: pa.Table) -> pa.ChunkedArray:
        """Which rows have it; null, which is no, where the key is null."""
        column = table.column(self.column)
        if self.value is None:
            return pc.is_null(column)
        if column.type != self.value.type:
            column = column.cast(self.value.type)
        return pc.equal(column, self.value)


@dataclass(frozen=True, slots=True)
class Selection:
    """What the filters of a command let through."""

    streams: Sequence[Stream]
    first: int | None
    last: int | None
    kind: str | None
    keys: Sequence[KeyValue]
    form: LoggedForm

    @classmethod
    def of(cls, options: argparse.Namespace, meta: OperatorMeta) -> Selection:
        """What was asked for, by the schema of the logs."""
        first, last = options.batch or (None, None)
        form = form_of(meta)
        schema = meta.input_schema
        keys = [
            key_value(column, text, "operator", form.keys, schema) for column, text in options.key
        ]
        return cls(_streams(options.stream, options.kind), first, last, options.kind, keys, form)

    @property
    def is_about_rows(self) -> bool:
        """Whether rows have to be looked at: a footer does not tell which keys a frame holds."""
        return bool(self.keys)

    @property
    def is_filter(self) -> bool:
        """Whether segments without such rows are left out."""
        return self.kind is not None or bool(self.keys)

    def has_batch(self, batch: int) -> bool:
        """Whether the batch is asked for."""
        return is_within(batch, (self.first, self.last))

    def tables(self, segment: Segment) -> Iterator[tuple[str, pa.Table]]:
        """The rows of a segment that are asked for, by kind; footprints as open and check."""
        inputs = {name: (frame, None) for name, frame in self.form.inputs.items()}
        for name, (frame, footprint) in {**inputs, **_FRAMES}.items():
            if frame not in segment.frames or not self.wants(name):
                continue
            table = self.form.table(segment, frame)
            assert table is not None
            if footprint is not None:
                table = table.filter(
                    pc.equal(table.column(_KIND), _scalar(str(int(footprint)), pa.int8()))
                )
            if any(key.column not in table.schema.names for key in self.keys):
                continue  # footprints of a join are of tuples of many keys
            for key in self.keys:
                table = table.filter(key.matches(table))
            yield name, table

    def wants(self, name: str) -> bool:
        """Whether rows of this kind are asked for."""
        if self.kind == "footprints":
            return name in ("open", "check")
        if self.kind == INPUT:
            return name in self.form.inputs
        return self.kind is None or name == self.kind


def _streams(stream: str | None, kind: str | None) -> Sequence[Stream]:
    """The streams that can hold what is asked for."""
    asked = list(OPERATOR_STREAMS) if stream is None else [Stream[stream.upper()]]
    if kind is None:
        return asked
    holding = [Stream.INPUT] if kind == INPUT else [Stream.OUTPUT]
    if kind in ("footprints", "open", "check"):
        holding.append(Stream.SNAPSHOT)
    found = [each for each in asked if each in holding]
    if not found:
        raise SettingError(
            f"The {stream} log holds no rows of kind {kind}.",
            where="--stream, --kind",
            fix="Leave out --stream.",
        )
    return found


def is_within(batch: int, batches: tuple[int | None, int | None]) -> bool:
    """Whether a batch is in a range, both ends included; None is an open end."""
    first, last = batches
    return (first is None or batch >= first) and (last is None or batch <= last)


def key_value(
    column: str, text: str, of_what: str, keys: Sequence[str], schema: pa.Schema
) -> KeyValue:
    """A filter by key, as it was typed; ``keys`` are the names of those there are."""
    if column not in keys:
        raise SettingError(
            f"{column!r} is no key of this {of_what}.",
            where="--key",
            fix=f"Its keys are {', '.join(keys)}." if keys else "It has none.",
        )
    if text == "null":
        return KeyValue(column, None)
    kind = schema.field(column).type
    try:
        return KeyValue(column, _parse(text, kind))
    except (pa.ArrowException, ValueError) as error:
        raise SettingError(
            f"{text!r} is no value of key {column!r}, which is {kind}.",
            where="--key",
            fix="Write it as the type asks, such as 7, true, 2026-01-31 or 2026-01-31T12:00:00.",
        ) from error


def _parse(text: str, kind: pa.DataType) -> pa.Scalar:
    types = pa.types
    if types.is_string(kind) or types.is_large_string(kind):
        is_quoted = len(text) > 1 and text[0] == text[-1] == '"'
        return _scalar(json.loads(text) if is_quoted else text, kind)
    if types.is_timestamp(kind) and kind.tz is not None:
        # Arrow asks for an offset where the type has a zone; without one, UTC is meant.
        moment = text if ":" in text else f"{text}T00:00:00"
        has_offset = re.search(r":.*(Z|[+-][0-9]{2}(:?[0-9]{2})?)$", moment) is not None
        return _scalar(moment if has_offset else f"{moment}Z", kind)
    return _scalar(text, kind)


def _scalar(text: str, kind: pa.DataType) -> pa.Scalar:
    """Arrow's value of a text. Made by hand: `pa.scalar` would import pandas to look at it."""
    data = text.encode()
    buffers = [None, pa.py_buffer(struct.pack("=2i", 0, len(data))), pa.py_buffer(data)]
    return pa.Array.from_buffers(pa.string(), 1, buffers).cast(kind)[0]
