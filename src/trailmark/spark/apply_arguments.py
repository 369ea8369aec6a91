"""The arguments of `tm.apply` that no other operator has, and what is wrong with them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from pyspark.sql import types as spark
from pyspark.sql.pandas.types import from_arrow_schema

from trailmark.errors import SettingError
from trailmark.operators.aggregate.arguments import key_names
from trailmark.operators.user_code import is_keyed
from trailmark.settings import parse_duration
from trailmark.spark.schemas import arrow_schema


def key_columns(by: str | Sequence[str] | None) -> list[str] | None:
    """The names of the columns that are given as keys, if there are any."""
    return None if by is None else key_names(by)


def check_columns(df: DataFrame, argument: str = "df") -> None:
    """Refuses columns that a log cannot have."""
    names = df.columns
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise SettingError(
            f"Two columns of the DataFrame are named {twice[0]!r}.",
            where=argument,
            fix="Rename one, or select the columns that the operator needs.",
        )
    for name in names:
        if name.startswith("$"):
            raise SettingError(
                f"Names that begin with $ are used by the log: {name!r}.",
                where=argument,
                fix="Rename the column.",
            )


def check_form(
    operator: Any,
    *,
    by: list[str] | None,
    time: str | None,
    delay: str | timedelta,
    late: str,
    initial_state: DataFrame | None,
) -> None:
    """The two forms are told by what the class has, and each takes arguments of its own."""
    if not callable(operator) and not hasattr(operator, "process"):
        raise SettingError(
            f"operator must be a class with a method process, got {operator!r}.", where="operator"
        )
    if is_keyed(operator):
        if by is None:
            raise SettingError(
                "A keyed operator needs key columns.",
                where="by",
                fix="For example by='item_id'; the whole form has get_checkpoint and "
                "restore_checkpoint in the place of a state that is declared.",
            )
    else:
        _check_whole(time, initial_state)
    _check_times(time, delay, late)


def _check_whole(time: str | None, initial_state: DataFrame | None) -> None:
    for argument, given in (("time", time), ("initial_state", initial_state)):
        if given is not None:
            raise SettingError(
                f"{argument} is for keyed operators, and the operator declares no state.",
                where=argument,
                fix='Declare one, for example state = {"n": pa.int64()}.',
            )


def _check_times(time: str | None, delay: str | timedelta, late: str) -> None:
    """Without event time there is no watermark to stay behind."""
    if time is not None:
        return
    for argument, is_given in (
        ("delay", parse_duration(delay, "delay") != 0),
        ("late", late != "drop"),
    ):
        if is_given:
            raise SettingError(
                f"{argument} is about event time, and no column was named for that.",
                where=argument,
                fix="For example time='ordered_at'; the form with a state that is declared has it.",
            )


def result_schemas(
    schema: str | spark.StructType | pa.Schema,
) -> tuple[pa.Schema, spark.StructType]:
    """The columns of the result, as Arrow and as Spark have them; all of them may be null."""
    try:
        if isinstance(schema, pa.Schema):
            schema = from_arrow_schema(schema)
        if isinstance(schema, str):
            schema = spark.StructType.fromDDL(schema)
    except PySparkException as error:
        raise SettingError(
            f"schema is none that Spark has: {str(error).strip().splitlines()[0]}",
            where="schema",
            fix="For example schema='item_id long, n long'.",
        ) from error
    if not isinstance(schema, spark.StructType) or not len(schema):
        raise SettingError(
            f"schema must name the columns of the result, got {schema!r}.",
            where="schema",
            fix="For example schema='item_id long, n long'.",
        )
    nullable = schema.toNullable()
    return arrow_schema(nullable, "schema", "a log"), nullable
