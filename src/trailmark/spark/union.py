"""`union`: several streams as one, in an order that depends on their content alone."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from datetime import timedelta

from pyspark.errors import PySparkRuntimeError
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as spark
from pyspark.sql.streaming import datasource as spark_sources

from trailmark.errors import SettingError
from trailmark.log import OperatorMeta, check_same_operator, open_storage, read_meta
from trailmark.log.readers import check_reader_name
from trailmark.records import MARK, MOST_PORTS
from trailmark.settings import parse_duration
from trailmark.spark import paths
from trailmark.spark.arguments import check_classic
from trailmark.spark.boundary import boundary_at
from trailmark.spark.connect import is_connect, refused
from trailmark.spark.control import named
from trailmark.spark.internals import driver_directory
from trailmark.spark.marked_by import MarkedBy, marking
from trailmark.spark.own_sources import register_once
from trailmark.spark.schemas import arrow_schema
from trailmark.spark.turns import check_turns
from trailmark.spark.union_columns import columns_of_streams, common_columns, stream_path
from trailmark.spark.union_source import UnionOptions, UnionSource
from trailmark.spark.workers import check_workers
from trailmark.streams.union.answering import (
    Answering,
    OnCorrection,
    OnFailure,
    check_choice,
)
from trailmark.streams.union.description import is_union
from trailmark.streams.union.idle import parse_idle_after

_log = logging.getLogger("trailmark")


def union(
    inputs: Mapping[str, str | os.PathLike[str] | DataFrame],
    *,
    time: str,
    path: str | os.PathLike[str],
    interval: str | timedelta = "500 ms",
    delay: str | timedelta = "0 seconds",
    reader: str | None = None,
    max_rows_per_trigger: int | None = 5_000_000,
    answer_within: str | timedelta | None = None,
    on_failure: OnFailure = "process",
    on_correction: OnCorrection = "process",
    give_up_after: str | timedelta | None = None,
    idle_after: str | timedelta | None = None,
    turns: str | os.PathLike[str] | None = None,
    term: str | timedelta | None = None,
) -> DataFrame:
    """Several streams as one, ordered by time.

    Rows come out in the order of their times; among equal times the inputs count in the order in
    which they are given, and the rows of an input in the order of its stream. So the result depends
    on what is in the streams, and not on when it came. Rows are released a slice of time at a time,
    as soon as every input is complete up to the end of the slice: see :func:`with_heartbeat` and
    the options ``timeColumn`` and ``delay`` of ``format("trailmark")`` for how a stream says so.
    Time windows behind a union close by the same boundary, also while no rows come.

    Parameters
    ----------
    inputs
        The streams by name: paths of Trailmark streams, or DataFrames that read one and do nothing
        else.
    time
        Their time column, which has to be the time column of every stream.
    path
        Directory or ``s3://`` URL for what the union decides. Each query has one of its own.
    interval
        How long a slice is. A shorter one releases rows sooner, in more batches.
    delay
        How much older than the newest row a later one may be, in streams whose writers promise
        nothing. A stream with promises goes by these.
    reader
        The name under which the streams keep what the union still needs, whatever their retention.
    max_rows_per_trigger
        About how many rows a batch has at most; None for any number. A batch that was begun cannot
        be made smaller later.
    answer_within
        How long a row may wait for inputs that are silent or behind. When most of that has passed,
        rows of the others are given out all the same, marked as tentative, and so are results that
        operators make of them. When the missing inputs are back, the same rows come once more as
        stable ones, in their order, and replace them. Without it the union waits.
    on_failure
        While inputs are missing: ``"process"`` gives out new rows at once; ``"delay"`` lets each
        wait as long as it may, so that fewer are tentative.
    on_correction
        While what was tentative is replaced: the same, or ``"suspend"``, which holds new rows back
        until that is done.
    give_up_after
        An input that is missing, and has not moved for so long, is ended: the others go on without
        it, what there is of it counts, and whatever comes later is late, for all who read that
        stream. It cannot be undone. Without it the union waits for ever.
    idle_after
        An input whose writers promise nothing, and that has had nothing new for so long, is not
        waited for: the others go on, and what comes to it later and is older than what they have
        released is late. With its next rows it counts again. Inputs with promises are waited for
        all the same. Without it a silent input holds all others.
    turns
        With ``on_correction="suspend"``, and replicas that run the same query: a lease (directory
        or ``s3://`` URL) that all of them reach. Whoever is to correct takes it first; the others
        go on answering until it is their turn, and correct then.
    term
        How long the one whose turn it is may be silent before another one takes it: ``"1 second"``.

    Returns
    -------
    A streaming DataFrame with the columns that all inputs have, of the same types, and a column
    ``source`` with the name of the input; with ``answer_within`` also a column ``tentative``.

    Examples
    --------
    >>> orders = tm.union(                                          # doctest: +SKIP
    ...     {"eu": "/data/eu", "us": "/data/us", "asia": "s3://orders/asia"},
    ...     time="at", path="/data/all-orders",
    ... )
    """
    session = _session(inputs)
    directory = driver_directory(session)
    given = {_name(name): stream_path(name, each, directory) for name, each in inputs.items()}
    _check_count(given)
    own = paths.absolute(path, directory)
    stored = _stored(own)
    columns = columns_of_streams(given, inputs, time, stored)
    answering = _answering(answer_within, on_failure, on_correction, give_up_after)
    schema = common_columns(columns, time, is_marked=answering is not None)
    interval_us = _interval(interval)
    options = UnionOptions(
        own,
        given,
        time,
        interval_us,
        parse_duration(delay, "delay"),
        None if reader is None else check_reader_name(reader),
        _most_rows(max_rows_per_trigger),
        answering,
        None if idle_after is None else parse_idle_after(idle_after, interval_us),
        check_turns(turns, term, answering, paths.absolute(path, directory), directory),
    )
    _check_path(options, schema, stored)
    register_once(session, UnionSource)
    source = session.readStream.format(UnionSource.name()).options(**options.to_options())
    rows = source.schema(schema).load()
    notes = {time: boundary_at(options.path)}
    if answering is not None:
        notes[MARK] = marking([MarkedBy(options.path)])
    return rows.select(
        *(
            named(each).alias(each, metadata=notes[each]) if each in notes else named(each)
            for each in schema.names
        )
    )


def _answering(
    within: str | timedelta | None,
    on_failure: OnFailure,
    on_correction: OnCorrection,
    give_up_after: str | timedelta | None,
) -> Answering | None:
    check_choice(on_failure, ("process", "delay"), "on_failure")
    check_choice(on_correction, ("process", "delay", "suspend"), "on_correction")
    if within is None:
        if (on_failure, on_correction, give_up_after) != ("process", "process", None):
            raise SettingError(
                "Without answer_within a union waits for all its inputs, and nothing is tentative.",
                where="on_failure, on_correction, give_up_after",
                fix="Say how long a row may wait: answer_within='3 seconds'.",
            )
        return None
    within_us = parse_duration(within, "answer_within")
    if not within_us:
        raise SettingError(
            "A bound has a length.", where="answer_within", fix="Use '3 seconds', for example."
        )
    if on_correction == "suspend":
        _log.warning(
            "tm.union: with on_correction='suspend' new rows wait until what was tentative is "
            "replaced. After a long failure that takes longer than answer_within."
        )
    give_up_us = None if give_up_after is None else parse_duration(give_up_after, "give_up_after")
    if give_up_us is not None and give_up_us < within_us:
        raise SettingError(
            "An input would be ended before anything is answered without it.",
            where="give_up_after",
            fix="Give it longer than answer_within: hours, for example. It cannot be undone.",
        )
    return Answering(within_us, on_failure, on_correction, give_up_us)


def _session(inputs: object) -> SparkSession:
    if not isinstance(inputs, Mapping):
        raise SettingError(
            f"inputs must be a dictionary of names and streams, got {type(inputs).__name__}.",
            where="inputs",
            fix='For example {"eu": "/data/eu", "us": "/data/us"}.',
        )
    for name, each in inputs.items():
        if isinstance(each, DataFrame):
            check_classic(each, "tm.union", f"inputs[{name!r}]")
    try:
        session = SparkSession.active()
    except PySparkRuntimeError as error:
        raise SettingError(
            "There is no session of Spark.",
            where="inputs",
            fix="Make one first: SparkSession.builder.getOrCreate().",
        ) from error
    if is_connect(session):
        why = "operators find its boundary, and what is tentative, in Spark's plans"
        raise refused("tm.union", why, "inputs")
    if not hasattr(spark_sources, "SupportsTriggerAvailableNow"):
        raise SettingError(
            f"Spark {session.version} does not tell a source where a query stands, and a union has "
            "to know.",
            where="SparkSession",
            fix="Use Spark 4.2 or later.",
        )
    check_workers(session)
    return session


def _check_count(given: Mapping[str, str]) -> None:
    if not 1 <= len(given) <= MOST_PORTS:
        raise SettingError(
            f"A union has 1 to {MOST_PORTS} inputs, not {len(given)}.",
            where="inputs",
            fix='For example {"eu": "/data/eu", "us": "/data/us"}.',
        )
    if len(set(given.values())) < len(given):
        raise SettingError(
            "Two inputs are the same stream.", where="inputs", fix="Name every stream once."
        )


def _name(name: object) -> str:
    if not isinstance(name, str) or not name:
        raise SettingError(f"{name!r} cannot be the name of an input.", where="inputs")
    return name


def _interval(given: str | timedelta) -> int:
    interval_us = parse_duration(given, "interval")
    if not interval_us:
        raise SettingError("A slice has a length.", where="interval", fix="Use 500 ms.")
    return interval_us


def _most_rows(given: int | None) -> int | None:
    is_whole = isinstance(given, int) and not isinstance(given, bool)
    if given is not None and (not is_whole or given < 1):
        raise SettingError(
            f"max_rows_per_trigger must be a number of rows or None, got {given!r}.",
            where="max_rows_per_trigger",
        )
    return given


def _stored(path: str) -> OperatorMeta | None:
    """What is kept of whatever is at the path of a union."""
    with paths.named_in_full(path):
        return read_meta(open_storage(path))


def _check_path(
    options: UnionOptions, schema: spark.StructType, stored: OperatorMeta | None
) -> None:
    """Refuses a path that holds something else, or another union."""
    if options.path in options.paths.values():
        raise SettingError(
            f"{options.path} is a stream that the union reads.",
            where="path",
            fix="Give the union a directory of its own.",
        )
    if stored is not None and not is_union(stored):
        raise SettingError(
            f"There are logs of something else at {options.path}.",
            where="path",
            fix="Give the union a directory of its own.",
        )
    if stored is not None:
        with paths.named_in_full(options.path):
            check_same_operator(stored, options.described(arrow_schema(schema)).to_meta())
