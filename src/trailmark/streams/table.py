"""`read_table`: a stream, or a part of it, as one Arrow table."""

from __future__ import annotations

import os
from collections.abc import Sequence
from datetime import datetime

import pyarrow as pa

from trailmark.errors import SettingError, UnknownFormat
from trailmark.log import open_storage, read_meta
from trailmark.log.storage.urls import full_path, is_url
from trailmark.streams.times import Span, parse_timestamp
from trailmark.streams.view import StreamView, open_view


def read_table(
    path: str | os.PathLike[str],
    *,
    records: str | None = None,
    columns: Sequence[str] | None = None,
    starting_batch: int | None = None,
    ending_batch: int | None = None,
    starting_timestamp: str | datetime | None = None,
    ending_timestamp: str | datetime | None = None,
) -> pa.Table:
    """Read committed rows of a written stream, or of an operator, without Spark.

    Parameters
    ----------
    path
        Directory or ``s3://`` URL of the stream, or of an operator.
    records
        Of an operator: ``"results"`` (the default), ``"all"`` (results and footprints with their
        kind, place and state), ``"input"`` or ``"late"``.
    columns
        Only these columns, in this order.
    starting_batch, ending_batch
        Only these batches, both included.
    starting_timestamp, ending_timestamp
        Only rows of these times, both included: of the stream's time column, or if it has none, of
        the batches that were written then. A time without a zone is in UTC.

    Examples
    --------
    >>> tm.read_table("/data/orders", starting_batch=100, columns=["item_id"])  # doctest: +SKIP
    """
    storage = open_storage(path)
    if read_meta(storage) is None:
        place = os.fspath(path)
        raise UnknownFormat(
            f"There is no stream at {place if is_url(place) else full_path(place)}.",
            where="path",
            fix="Give the path that the stream or the operator was given.",
        )
    view = open_view(storage, records)
    span = Span(
        starting_batch,
        ending_batch,
        _time(starting_timestamp, "starting_timestamp"),
        _time(ending_timestamp, "ending_timestamp"),
    )
    return table_of(view, span, columns)


def table_of(view: StreamView, span: Span, columns: Sequence[str] | None = None) -> pa.Table:
    """The rows of a span that a view has, as one table."""
    wanted = check_columns(view, columns)
    first, end = bounds(view, span)
    parts = [
        rows
        for batch in view.batches(first, end, span)
        for chunk in batch.chunks
        for rows in view.read(chunk, wanted, span)
    ]
    schema = pa.schema([view.schema.field(name) for name in wanted])
    return pa.Table.from_batches(parts, schema)


def bounds(view: StreamView, span: Span) -> tuple[int, int]:
    """The first batch of a span, and the one after its last, of those that are there."""
    oldest, end = view.oldest(), view.end()
    first = oldest if span.first_batch is None else max(span.first_batch, oldest)
    if span.last_batch is not None:
        end = min(end, span.last_batch + 1)
    return first, max(first, end)


def check_columns(view: StreamView, columns: Sequence[str] | None) -> list[str]:
    """The columns that are asked for; all of them if none are named."""
    if columns is None:
        return list(view.schema.names)
    for name in columns:
        if name not in view.schema.names:
            raise SettingError(
                f"There is no column {name!r}.",
                where="columns",
                fix=f"The columns are {', '.join(view.schema.names)}.",
            )
    return list(columns)


def _time(given: str | datetime | None, argument: str) -> int | None:
    return None if given is None else parse_timestamp(given, argument)
