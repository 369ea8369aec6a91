"""States that keys begin with: from a DataFrame, by bucket, into the first batch of the log.

When an operator is defined, the states are written beside its logs, a file for each bucket. The
task that takes the first batch in puts them into its input, on a port of their own. From then on
they are in the log, and a recovery finds them there.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator
from functools import partial
from zlib import crc32

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import types as spark

from trailmark.errors import DamagedSegment, SettingError
from trailmark.log import OperatorMeta, Storage, StreamLog
from trailmark.operators.keyed import Keyed
from trailmark.records import Stream
from trailmark.settings import LogSettings
from trailmark.spark.control import control_rows, named, plainly_named
from trailmark.spark.received import ControlKeys, take_bucket
from trailmark.spark.schemas import arrow_schema
from trailmark.spark.storages import open_to_write
from trailmark.spark.workers import carried
from trailmark.values import dataclass

_DIRECTORY = "initial"
_CHECKSUM_BYTES = 8


@dataclass(frozen=True, slots=True)
class StoredStates:
    """Files with states, one for each bucket, of one definition of an operator."""

    name: str
    schema: pa.Schema

    def write(self, storage: Storage, bucket: int, rows: pa.RecordBatch) -> None:
        """Writes the states of a bucket; a task that is done again leaves what is there."""
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, self.schema) as stream:
            stream.write_batch(rows)
        data = sink.getvalue()
        storage.publish(self._path(bucket), [data, b"%08x" % crc32(data)])

    def read(self, storage: Storage, bucket: int) -> pa.Table:
        """The states of a bucket."""
        path = self._path(bucket)
        content = storage.read(path)
        data, checksum = content[:-_CHECKSUM_BYTES], content[-_CHECKSUM_BYTES:]
        if bytes(checksum) != b"%08x" % crc32(data):
            raise DamagedSegment(
                "The initial states of a bucket do not match their checksum.",
                where=path,
                fix="Start the query again: they are written anew.",
            )
        with pa.ipc.open_stream(data) as stream:
            return stream.read_all()

    def _path(self, bucket: int) -> str:
        return f"{_DIRECTORY}/{self.name}-{bucket:05d}.arrow"


@dataclass(frozen=True, slots=True)
class InitialState:
    """The states that keys begin with, of which operator, and by which keys."""

    states: DataFrame
    operator: Keyed
    keys: tuple[spark.StructField, ...]

    @classmethod
    def of(cls, states: DataFrame, df: DataFrame, operator: Keyed) -> InitialState:
        """Refuses what cannot be states of this operator's keys."""
        schema = operator.ports[1].schema
        if not isinstance(states, DataFrame) or states.isStreaming:
            raise SettingError(
                "initial_state must be a DataFrame that does not stream.", where="initial_state"
            )
        if sorted(states.columns) != sorted(schema.names):
            raise SettingError(
                f"initial_state has the columns {states.columns}; needed are {schema.names}, the "
                "keys and the columns of the state.",
                where="initial_state",
                fix="Select these columns.",
            )
        chosen = states.select(*(named(name) for name in schema.names))
        found = arrow_schema(chosen.schema.toNullable(), "initial_state", "a log")
        for has, wants in zip(found, schema, strict=True):
            if not has.type.equals(wants.type):
                raise SettingError(
                    f"Column {wants.name!r} is {has.type} in initial_state and {wants.type} in the "
                    "operator.",
                    where="initial_state",
                    fix="Cast the column.",
                )
        return cls(chosen, operator, tuple(df.schema[name] for name in operator.keys))

    def stored(
        self,
        path: str,
        settings: LogSettings,
        buckets: int,
        control: ControlKeys,
        logs: OperatorMeta | None,
    ) -> StoredStates | None:
        """Writes the states beside the logs, or refuses them; None if the logs have gone beyond
        their first batch."""
        storage = open_to_write(path, settings)
        if logs is not None and _has_begun(storage, logs):
            for entry in storage.list(_DIRECTORY):
                storage.delete(f"{_DIRECTORY}/{entry.name}")
            return None
        stored = StoredStates(uuid.uuid4().hex, self.operator.ports[1].schema)
        keys = list(self.keys)
        rows = self.states.union(control_rows(self.states, keys, control, {}))
        shuffled = plainly_named(rows.repartition(buckets, *(named(key.name) for key in keys)))
        write = partial(_write_bucket, stored, path, settings, control)
        task = carried(write, self.operator, "trailmark_initial_state")
        troubles = [row.trouble for row in shuffled.mapInArrow(task, "trouble string").collect()]
        if any(troubles):
            raise SettingError(
                f"initial_state {next(filter(None, troubles))}.",
                where="initial_state",
                fix="Give one row for each key, and a value for every number.",
            )
        return stored


def _has_begun(storage: Storage, logs: OperatorMeta) -> bool:
    """Whether Spark can no longer ask for the first batch again."""
    inputs = [
        StreamLog(storage, Stream.INPUT, logs.log_id, bucket) for bucket in range(logs.buckets)
    ]
    return max(log.newest() for log in inputs) > logs.first_batch


def _write_bucket(
    stored: StoredStates,
    path: str,
    settings: LogSettings,
    control: ControlKeys,
    operator: Keyed,
    batches: Iterable[pa.RecordBatch],
) -> Iterator[pa.RecordBatch]:
    """Writes the states of a bucket, or says what is wrong with them: once they are in a log it is
    too late."""
    number, rows = take_bucket(batches, stored.schema, control, where="initial_state")
    trouble = operator.initial_trouble(rows)
    if not trouble:
        stored.write(open_to_write(path, settings), number, rows)
    yield pa.RecordBatch.from_pydict({"trouble": pa.array([trouble], pa.string())})
