"""``format("trailmark")`` for records that are a state: each task rebuilds that of a bucket."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql import datasource as spark
from pyspark.sql.types import StructType

from trailmark.log import open_storage
from trailmark.spark.options import ReadOptions
from trailmark.spark.schemas import arrow_schema, as_asked, check_wanted
from trailmark.streams.operator_state import OperatorState, check_as_of, open_state


def state_of(options: ReadOptions) -> OperatorState:
    """The state that is asked for. Code is imported by its name, in whatever process this is."""
    check_as_of(options.span)
    return open_state(open_storage(options.path), options.operator)


@dataclass(frozen=True)
class BucketOfState(spark.InputPartition):
    """What one task rebuilds; ``batch`` is None where there is nothing to rebuild."""

    batch: int | None
    bucket: int


class StateReader(spark.DataSourceReader):
    """The state of an operator as of one batch, which is the same for all tasks."""

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        self._options = options
        self._schema = schema

    def partitions(self) -> Sequence[spark.InputPartition]:
        state = state_of(self._options)
        check_wanted(self._schema, state)
        batch = state.as_of(self._options.span.last_batch)
        return [BucketOfState(batch, bucket) for bucket in state.buckets]

    def read(self, partition: spark.InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, BucketOfState)
        if partition.batch is None:
            return
        wanted = arrow_schema(self._schema)
        for rows in state_of(self._options).rows(partition.batch, partition.bucket):
            yield as_asked(rows.select(wanted.names), wanted)
