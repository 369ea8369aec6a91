"""`read_table`: a stream, or a part of it, as one Arrow table."""

from __future__ import annotations

import os
from collections.abc import Sequence
from datetime import datetime

import pyarrow as pa

from trailmark.errors import SettingError, UnknownFormat
from trailmark.log import Storage, open_storage, read_meta
from trailmark.log.storage.urls import full_path, is_url
from trailmark.streams.answers import Answers, asked_answers, refuse_of_replicas
from trailmark.streams.times import Span, parse_timestamp
from trailmark.streams.view import STATE, Columned, StreamView, open_view


def read_table(
    path: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    *,
    records: str | None = None,
    operator: object = None,
    answers: str | None = None,
    change_feed: bool = False,
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
        Directory or ``s3://`` URL of the stream, or of an operator. Of an operator with replicas
        a list of their paths: the results that the furthest of them has, read from another one
        where that cannot be read. Of the other arguments only ``columns`` and ``answers`` may be
        given then, as ``"stable"`` or ``"current"``.
    records
        Of an operator: ``"results"`` (the default), ``"all"`` (results and footprints with their
        kind, place and state), ``"input"``, ``"late"`` or ``"state"`` (what is open at the end of a
        batch, rebuilt).
    operator
        To rebuild a state, what of the operator is your own code: of an aggregate with a
        `UserFunction` a mapping from the names of values to functions. Or a name that it can be
        imported by, ``"package.module:name"``.
    answers
        Of results, where they may be tentative (`tm.union` with ``answer_within``): ``"stable"``
        (the default), ``"all"``, or ``"current"``, which are the stable ones and those that stand
        at the end of the last batch that is read. The last two add a column ``tentative``.
    change_feed
        The results as what came and went with every batch: with the columns ``tentative``,
        ``_change_type`` (``insert`` or ``delete``), ``_commit_version`` (the batch) and
        ``_commit_timestamp``.
    columns
        Only these columns, in this order.
    starting_batch, ending_batch
        Only these batches, both included. A state is as of the end of ``ending_batch``.
    starting_timestamp, ending_timestamp
        Only rows of these times, both included: of the stream's time column, or if it has none, of
        the batches that were written then. A time without a zone is in UTC.

    Examples
    --------
    >>> tm.read_table("/data/orders", starting_batch=100, columns=["item_id"])  # doctest: +SKIP
    """
    if not isinstance(path, str | os.PathLike):
        batches = starting_batch, ending_batch, starting_timestamp, ending_timestamp
        if any(each is not None for each in (records, operator, *batches)):
            raise SettingError(
                "Replicas are read by the numbers of results, and batches are each one's own.",
                where="path",
                fix="Give columns and answers and nothing else, or the path of one replica.",
            )
        wanted = asked_answers(answers, None, change_feed=change_feed)
        return _table_of_replicas(path, columns, wanted or Answers.STABLE)
    storage = open_storage(path)
    if read_meta(storage) is None:
        place = os.fspath(path)
        raise UnknownFormat(
            f"There is no stream at {place if is_url(place) else full_path(place)}.",
            where="path",
            fix="Give the path that the stream or the operator was given.",
        )
    span = Span(
        starting_batch,
        ending_batch,
        _time(starting_timestamp, "starting_timestamp"),
        _time(ending_timestamp, "ending_timestamp"),
    )
    asked = asked_answers(answers, records, change_feed=change_feed)
    if records == STATE:
        return _state_table(storage, operator, span, columns)
    check_no_code(operator)
    return table_of(open_view(storage, records, asked), span, columns)


def _table_of_replicas(
    paths: Sequence[str | os.PathLike[str]], columns: Sequence[str] | None, answers: Answers
) -> pa.Table:
    from trailmark.streams.replicas.choosing import Replicas
    from trailmark.streams.replicas.table import table_of_replicas

    if answers in (Answers.ALL, Answers.CHANGES):
        raise refuse_of_replicas(answers)
    storages = {os.fspath(path): open_storage(path) for path in paths}
    return table_of_replicas(Replicas(storages), columns, answers, list(storages))


def check_no_code(operator: object) -> None:
    """Refuses code where no operator is rebuilt."""
    if operator is not None:
        raise SettingError(
            "Only a state is rebuilt with code; other records are read as they were logged.",
            where="operator",
            fix="Leave it out, or read records='state'.",
        )


def _state_table(
    storage: Storage, code: object, span: Span, columns: Sequence[str] | None
) -> pa.Table:
    from trailmark.streams.operator_state import check_as_of, open_state

    check_as_of(span)
    state = open_state(storage, code)
    wanted = check_columns(state, columns)
    return state.table(span.last_batch).select(wanted)


def table_of(view: StreamView, span: Span, columns: Sequence[str] | None = None) -> pa.Table:
    """The rows of a span that a view has, as one table."""
    wanted = check_columns(view, columns)
    first, end = bounds(view, span)
    view = beginning(view, span, first)
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


def beginning(view: StreamView, span: Span, first: int) -> StreamView:
    """The view of whoever begins with a batch. Who names a start goes on with what he knows."""
    return view if span.has_start else view.beginning_at(first)


def check_columns(view: Columned, columns: Sequence[str] | None) -> list[str]:
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
