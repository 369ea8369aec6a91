"""The columns of operators with several inputs: as they are logged, and as they come out."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import types as spark

from trailmark.spark.marks import unmarked
from trailmark.spark.schemas import arrow_schema
from trailmark.spark.types import arrow_type


def input_schema(df: DataFrame, argument: str, keys: Sequence[str], by: str) -> pa.Schema:
    """The columns of an input as they are logged; nothing is known of nulls in them. ``by`` is the
    argument that names the keys."""
    for name in keys:
        if name in df.columns:
            arrow_type(df.schema[name], by)  # refuses what cannot be a key on Spark
    return arrow_schema(unmarked(df.schema).toNullable(), argument, "a log")


def result_fields(
    frames: Sequence[DataFrame], keys: Sequence[str], shown: pa.Schema
) -> tuple[spark.StructField, ...]:
    """The keys and then the other columns of all inputs, under the names that results have, with
    the types that they have in the DataFrames."""
    given = [frames[0].schema[name] for name in keys]
    given += [field for df in frames for field in unmarked(df.schema) if field.name not in keys]
    return tuple(
        spark.StructField(field.name, came.dataType, True)
        for field, came in zip(shown, given, strict=True)
    )
