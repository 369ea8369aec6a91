"""What a written stream is: its columns, the one with the time, and how its rows are spread."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from trailmark.errors import SettingError, UnsupportedType
from trailmark.log import (
    OperatorMeta,
    Origin,
    Storage,
    check_same_operator,
    create_or_open,
    read_meta,
)
from trailmark.log.meta import META_PATH, WRITTEN_STREAM
from trailmark.log.names import MOST_BUCKETS
from trailmark.state.keys import KeyLayout
from trailmark.values import dataclass

#: Parts by key, if their number is not given.
_DEFAULT_BUCKETS = 8


def is_stream(meta: OperatorMeta) -> bool:
    """Whether these are the files of a written stream, not of an operator."""
    return meta.is_written_stream


@dataclass(frozen=True, slots=True)
class StreamDescription:
    """What is stored in ``meta.json`` when a stream is first written to.

    Parameters
    ----------
    schema
        Its columns. Zoned times are kept in UTC.
    time_column
        The column with the event time, which time ranges are about; None where that is the time a
        batch was written.
    keys
        Rows with equal values in these columns are in the same bucket; none: rows stay together as
        they come.
    buckets
        How many buckets there are.
    source_schema
        The schema in the words of whoever writes (Spark's JSON), for readers of the same kind.
    """

    schema: pa.Schema
    time_column: str | None = None
    keys: tuple[str, ...] = ()
    buckets: int = 1
    source_schema: Mapping[str, Any] | None = None

    @classmethod
    def of(cls, meta: OperatorMeta) -> StreamDescription:
        """What an existing stream says of itself."""
        stored = meta.operator
        time, keys, source = (stored.get(each) for each in ("time", "keys", "source_schema"))
        names = meta.result_schema.names
        is_time = time is None or (
            time in names and pa.types.is_timestamp(meta.result_schema.field(time).type)
        )
        is_known = isinstance(source, dict | None) and isinstance(keys, list)
        if not is_time or not is_known or not all(key in names for key in keys or ()):
            raise Origin(META_PATH).mismatch(0, "the description of a stream cannot be understood")
        return cls(meta.result_schema, time, tuple(keys or ()), meta.buckets, source)

    def to_meta(self) -> OperatorMeta:
        """The description as it is stored."""
        return OperatorMeta(
            operator={
                "operator": WRITTEN_STREAM,
                "keys": list(self.keys),
                "source_schema": self.source_schema,
                "time": self.time_column,
            },
            ports=(),
            result_schema=self.schema,
            buckets=self.buckets,
        )


def open_stream(
    storage: Storage,
    schema: pa.Schema,
    *,
    time_column: str | None = None,
    keys: Sequence[str] | None = None,
    buckets: int | None = None,
    source_schema: Mapping[str, Any] | None = None,
) -> OperatorMeta:
    """Create a stream, or open one to go on with it.

    What is left out is as it was; what differs from it is refused.
    """
    stored = read_meta(storage)
    if stored is not None and not is_stream(stored):
        raise SettingError(
            "This path holds the logs of an operator, which only its own query may write.",
            where="path",
            fix="Give the stream a path of its own.",
        )
    if stored is not None:
        before = StreamDescription.of(stored)
        time_column = before.time_column if time_column is None else time_column
        keys = before.keys if keys is None else keys
        buckets = before.buckets if buckets is None else buckets
        source_schema = before.source_schema if source_schema is None else source_schema
    keys = tuple(keys or ())
    if buckets is None:
        buckets = _DEFAULT_BUCKETS if keys else 1
    _check(schema, time_column, keys, buckets)
    expected = StreamDescription(schema, time_column, keys, buckets, source_schema).to_meta()
    if stored is None:
        return create_or_open(storage, expected)
    check_same_operator(stored, expected)
    return stored


def check_delay(storage: Storage, time_column: str | None, argument: str) -> None:
    """Refuses a delay where there are no times to hold it against, before a stream is made.

    ``argument`` is what names the time column.
    """
    stored = read_meta(storage)
    has_times = stored is not None and is_stream(stored) and stored.operator.get("time") is not None
    if time_column is None and not has_times:
        raise SettingError(
            "A delay is about the times of rows, and the stream has no time column.",
            where="delay",
            fix=f"Name it with {argument}. A stream that was begun without one stays so.",
        )


def _check(schema: pa.Schema, time_column: str | None, keys: Sequence[str], buckets: int) -> None:
    for option, names in (("timeColumn", [time_column] if time_column else []), ("keys", keys)):
        for name in names:
            if name not in schema.names:
                raise SettingError(
                    f"There is no column {name!r}.",
                    where=option,
                    fix=f"The columns are {', '.join(schema.names)}.",
                )
    if time_column is not None and not pa.types.is_timestamp(schema.field(time_column).type):
        raise UnsupportedType(
            f"Column {time_column!r} of type {schema.field(time_column).type} is no time.",
            where="timeColumn",
            fix="Name a timestamp column.",
        )
    KeyLayout([schema.field(name) for name in keys])  # refuses what cannot be a key
    if not 1 <= buckets <= MOST_BUCKETS or (buckets > 1 and not keys):
        raise SettingError(
            f"A stream cannot have {buckets} buckets.",
            where="buckets",
            fix=f"Give a number from 1 to {MOST_BUCKETS:,}, together with the key columns.",
        )
