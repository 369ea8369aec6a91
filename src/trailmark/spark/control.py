"""Control rows: how a task learns which bucket it works on, even when the bucket is empty.

The number of a task is not the number of its bucket: after ``union`` tasks are numbered across
both sides, and after ``coalesce`` one task evaluates many buckets. So every bucket is sent one row
of its own with each batch: a key that Spark's hash puts there, and null in every other column. The
task takes the row out again (see `received`).

The rows come from a relation in the plan that is marked as streaming, so that it can be united with
a stream. It is no source: it never asks for a batch of its own. On Spark Connect nobody can mark a
relation, and a small task makes the rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as spark

from trailmark.spark.internals import as_streaming
from trailmark.spark.received import ControlKeys
from trailmark.spark.workers import carried

#: With so many keys per bucket, the chance that a bucket gets none is below 1 in 10^15.
_KEYS_PER_BUCKET = 48
#: How many different keys of a type are tried at most.
_FEW = {"boolean": 2, "tinyint": 128, "smallint": 32_768}
_MANY = 1 << 31
_NUMBERS = "number int"


def find_control_keys(
    session: SparkSession, keys: list[spark.StructField], buckets: int
) -> ControlKeys | None:
    """A key for every bucket; None if there are so few keys that a bucket could never have one."""
    column = max(range(len(keys)), key=lambda place: _count(keys[place].dataType))
    tried = range(min(_count(keys[column].dataType), _KEYS_PER_BUCKET * buckets))
    candidates = _keys(_literals(session, tried), keys, column)
    found: dict[int, int] = {}
    for number, row in zip(tried, candidates.select(_bucket(keys, buckets)).collect(), strict=True):
        found.setdefault(row[0], number)
    if len(found) < buckets:
        return None
    return ControlKeys(keys[column].name, tuple(found[bucket] for bucket in range(buckets)))


def _bucket(keys: list[spark.StructField], buckets: int) -> Column:
    """The bucket of a row: the same expression by which Spark's ``repartition`` chooses one."""
    return F.pmod(F.hash(*(named(key.name) for key in keys)), F.lit(buckets))


def control_rows(
    stream: DataFrame,
    keys: list[spark.StructField],
    found: ControlKeys,
    metadata: dict[str, str],
    ticks: DataFrame | None = None,
) -> DataFrame:
    """The control rows of all buckets, with the columns of ``stream``; streaming if that is.

    ``metadata`` is put into that of the first column. With ``ticks``, a stream without rows, they
    are made beside it, and need no name of Spark's that is not public.
    """
    names = [key.name for key in keys]
    if ticks is None:
        numbers = _literals(stream.sparkSession, found.numbers)
    else:
        numbers = _in_every_batch(ticks, found.numbers)
    rows = _keys(numbers, keys, names.index(found.column))
    columns = [
        named(f.name) if f.name in names else F.lit(None).cast(f.dataType).alias(f.name)
        for f in stream.schema
    ]
    first = stream.schema[0].name
    rows = rows.select(columns[0].alias(first, metadata=metadata), *columns[1:])
    return as_streaming(rows) if stream.isStreaming and ticks is None else rows


def named(column: str) -> Column:
    """A column by its exact name, dots and all."""
    return F.col(quoted(column))


def quoted(column: str) -> str:
    """The name of a column as Spark wants it where a name may also be a path."""
    escaped = column.replace("`", "``")
    return f"`{escaped}`"


def plainly_named(rows: DataFrame) -> DataFrame:
    """The same columns under names that ``mapInArrow`` can look up, which does not quote them; the
    workers go by their places."""
    if all(name.isidentifier() for name in rows.columns):
        return rows
    return rows.toDF(*(f"column_{place}" for place in range(len(rows.columns))))


def _count(kind: spark.DataType) -> int:
    if isinstance(kind, spark.DecimalType):
        return int(min(_MANY, 10 ** (kind.precision - kind.scale)))
    return _FEW.get(kind.simpleString(), _MANY)


def _keys(numbers: DataFrame, keys: list[spark.StructField], column: int) -> DataFrame:
    """Rows of keys: one column made from numbers, null in the others."""
    columns = [
        (as_key(key.dataType) if place == column else F.lit(None))
        .cast(key.dataType)
        .alias(key.name)
        for place, key in enumerate(keys)
    ]
    return numbers.select(*columns)


def _literals(session: SparkSession, numbers: Iterable[int]) -> DataFrame:
    """A column of numbers.

    A plan of literals is evaluated where it is planned: no job is started for it.
    """
    made = ", ".join(f"({number})" for number in numbers)
    return session.sql(f"SELECT * FROM VALUES {made} AS made(number)")


def _in_every_batch(ticks: DataFrame, numbers: Sequence[int]) -> DataFrame:
    """The same column as a stream that has the same rows in every micro-batch.

    Spark calls a function for every partition, also for one without rows, and a shuffle into one
    partition has that in every batch. But where a stream has nothing new, Spark's optimizer leaves
    out projections and shuffles of it. A function it does not look into, so there is one below the
    shuffle, too, which is never called.
    """
    nothing = carried(_no_numbers, None, "trailmark_ticks")
    make = carried(_made_numbers, tuple(numbers), "trailmark_control")
    return ticks.mapInArrow(nothing, _NUMBERS).repartition(1).mapInArrow(make, _NUMBERS)


def _no_numbers(_: None, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for _batch in batches:
        raise AssertionError("ticks have no rows")
    yield from ()


def _made_numbers(
    numbers: tuple[int, ...], batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    yield from _no_numbers(None, batches)
    yield pa.RecordBatch.from_pydict({"number": pa.array(numbers, pa.int32())})


def as_key(kind: spark.DataType) -> Column:
    """The column ``number`` as a key that can be cast to this type; `received.control_value` is its
    counterpart."""
    if isinstance(kind, spark.BooleanType):
        return F.expr("number = 1")
    if isinstance(kind, spark.DateType):
        return F.expr("date_from_unix_date(number)")
    if isinstance(kind, spark.TimestampType):
        return F.expr("timestamp_seconds(number)")
    if isinstance(kind, spark.TimestampNTZType):
        return F.expr("TIMESTAMP_NTZ '1970-01-01 00:00:00' + make_dt_interval(0, 0, 0, number)")
    return F.col("number")
