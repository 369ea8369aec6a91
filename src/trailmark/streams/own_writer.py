"""`stream_writer`: rows into a stream from any Python process, without Spark."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta, timezone

import pyarrow as pa

from trailmark.errors import SettingError
from trailmark.log import Clock, open_storage, wall_clock_us
from trailmark.log.names import LARGEST_BATCH
from trailmark.records import NO_BATCH
from trailmark.settings import LogSettings, parse_bytes, parse_duration
from trailmark.streams.description import check_delay, open_stream
from trailmark.streams.fencing import fenced
from trailmark.streams.heartbeats import check_writer
from trailmark.streams.retention import Retention
from trailmark.streams.times import parse_timestamp
from trailmark.streams.writer import StreamWriter, plan_writing

_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)


def stream_writer(
    path: str | os.PathLike[str],
    schema: pa.Schema,
    *,
    name: str,
    time_column: str | None = None,
    delay: str | timedelta | None = None,
    partition_by: Sequence[str] | None = None,
    buckets: int | None = None,
    retention: str | timedelta | None = None,
    retention_bytes: str | int | None = None,
    retention_batches: int | None = None,
    durability: str = "synced",
    compression: str = "auto",
    clock: Clock = wall_clock_us,
) -> OwnWriter:
    """Open a stream to write to it, or begin one.

    Parameters
    ----------
    path
        Directory or ``s3://`` URL of the stream.
    schema
        Its columns.
    name
        Who writes. The stream keeps the number of the last batch under each name, so whoever goes
        on under the same name knows what is there. Two that write at once have two names.
    time_column
        The timestamp column that time ranges and boundaries are about.
    delay
        How much older than the newest row a later one may be. With it the writer promises that the
        stream is complete up to the time of its newest row less the delay.
    partition_by, buckets
        Columns whose equal values stay together, in so many buckets.
    retention, retention_bytes, retention_batches
        Keep at least so much; without any of them, everything.
    durability, compression
        As the options of the same name of ``format("trailmark")``.

    Examples
    --------
    >>> schema = pa.schema([("at", pa.timestamp("us", "UTC")), ("value", pa.float64())])
    >>> writer = tm.stream_writer(                                      # doctest: +SKIP
    ...     "/data/sensors", schema, name="eu-1", time_column="at", delay="1 second"
    ... )
    >>> writer.append(pa.table({"at": [...], "value": [...]}))          # doctest: +SKIP
    >>> writer.heartbeat()                                              # doctest: +SKIP
    """
    check_writer(name)
    settings = LogSettings(durability=durability, compression=compression)  # type: ignore[arg-type]
    delay_us = None if delay is None else parse_duration(delay, "delay")
    kept = Retention(
        None if retention is None else parse_duration(retention, "retention"),
        None if retention_bytes is None else parse_bytes(retention_bytes, "retention_bytes"),
        retention_batches,
    )
    plain = open_storage(path, settings)
    storage = fenced(plain, os.fspath(path))
    if delay_us is not None:
        check_delay(storage, time_column, "time_column")
    meta = open_stream(storage, schema, time_column=time_column, keys=partition_by, buckets=buckets)

    def opened() -> StreamWriter:
        # Anew each time: a process may take part in a lease only after it has opened the stream.
        storage = fenced(plain, os.fspath(path))
        planned = plan_writing(storage, meta, clock)
        return StreamWriter(storage, meta, settings, kept, clock, planned, delay_us=delay_us)

    return OwnWriter(opened, name, clock)


class OwnWriter:
    """Appends batches of rows under a name. See :func:`stream_writer`."""

    def __init__(self, opened: Callable[[], StreamWriter], name: str, clock: Clock) -> None:
        self._opened = opened
        self._name = name
        self._clock = clock
        self._last = opened().last(name)

    @property
    def last(self) -> int:
        """The number of the last batch under this name, -1 if there is none."""
        return self._last

    def append(self, rows: pa.Table | pa.RecordBatch, number: int | None = None) -> bool:
        """Add rows as one batch, which is on disk when this returns; False if it was there before.

        After an error nobody knows whether the batch is there. Append the same rows under the same
        number: they are there once. Without a number it is the one after `last`; numbers only grow.
        A table without rows is no batch.
        """
        given = self._last + 1 if number is None else number
        if type(given) is not int or not 0 <= given <= LARGEST_BATCH:
            raise SettingError(f"{given!r} is no number of a batch.", where="number")
        parts = rows.to_batches() if isinstance(rows, pa.Table) else [rows]
        writer = self._opened()
        files = writer.write(parts, self._name)
        is_new = writer.commit(files, self._name, given) != NO_BATCH
        if files:
            self._last = given
        return is_new

    def heartbeat(self, asked: str | datetime | None = None) -> None:
        """Promise that the stream is complete up to a time, less the delay.

        To be called only when the source of the rows was asked and had nothing more, with the time
        at which it was asked; without one it is now. A time without a zone is in UTC.
        """
        asked_us = self._clock() if asked is None else parse_timestamp(asked, "asked")
        self._opened().send_heartbeat(self._name, asked_us)

    @property
    def boundary(self) -> datetime | None:
        """Up to which time the stream is complete; None if not all who write to it say so."""
        known = self._opened().boundaries()
        if known is None or known.stream is None:
            return None
        try:
            return _EPOCH + timedelta(microseconds=known.stream)
        except OverflowError:  # a time that Python has no word for
            return (datetime.max if known.stream > 0 else datetime.min).replace(tzinfo=timezone.utc)
