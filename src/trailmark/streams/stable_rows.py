"""A written stream whose rows are marked, read without those that are tentative."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa

from trailmark.records import MARK, Stream
from trailmark.streams.times import Span
from trailmark.streams.view import Chunk, StreamBatch, StreamView


def is_marked(schema: pa.Schema) -> bool:
    """Whether the rows of a stream say that they are tentative."""
    return MARK in schema.names and pa.types.is_boolean(schema.field(MARK).type)


class StableRows:
    """Implements `StreamView` for the rows that stand, without the mark."""

    def __init__(self, view: StreamView) -> None:
        self._view = view
        places = [n for n, field in enumerate(view.schema) if field.name != MARK]
        self.schema = pa.schema([view.schema.field(place) for place in places])
        self.source_schema = _without_mark(view.source_schema)
        self.time_column = view.time_column

    @property
    def log_id(self) -> str:
        return self._view.log_id

    @property
    def stream(self) -> Stream:
        return self._view.stream

    def oldest(self) -> int:
        return self._view.oldest()

    def end(self) -> int:
        return self._view.end()

    def find(self, timestamp_us: int) -> int:
        return self._view.find(timestamp_us)

    def needs(self, batch: int) -> int:
        return self._view.needs(batch)

    def beginning_at(self, batch: int) -> StreamView:
        return StableRows(self._view.beginning_at(batch))

    def batches(self, first: int, end: int, span: Span) -> Iterator[StreamBatch]:
        """How many rows are tentative is not known before they are read: all are counted."""
        return self._view.batches(first, end, span)

    def read(self, chunk: Chunk, columns: Sequence[str], span: Span) -> Iterator[pa.RecordBatch]:
        import pyarrow.compute as pc  # not for those who only commit

        for rows in self._view.read(chunk, [*columns, MARK], span):
            is_tentative = rows.column(len(columns)).fill_null(False)
            yield rows.filter(pc.invert(is_tentative)).select(list(columns))


def _without_mark(schema: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
    if schema is None:
        return None
    return {**schema, "fields": [each for each in schema["fields"] if each["name"] != MARK]}
