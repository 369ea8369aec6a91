"""Aggregate columns of Spark's, such as ``F.sum("v")``, as the functions that they stand for."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from pyspark.sql import Column, DataFrame

from trailmark.errors import SettingError
from trailmark.spark.connect import is_connect
from trailmark.spark.internals import Called, Constant, called_function
from trailmark.windows import functions
from trailmark.windows.functions import AnyFunction, Function

#: Functions of one column, by Spark's names for them.
_OF_A_COLUMN: Mapping[str, Callable[..., Function]] = {
    "array_agg": functions.collect_list,
    "avg": functions.avg,
    "collect_list": functions.collect_list,
    "collect_set": functions.collect_set,
    "max": functions.max,
    "mean": functions.avg,
    "median": functions.percentile,
    "min": functions.min,
    "std": functions.stddev,
    "stddev": functions.stddev,
    "stddev_samp": functions.stddev,
    "sum": functions.sum,
    "var_samp": functions.variance,
    "variance": functions.variance,
}
#: Those that are null instead of failing where a result does not fit.
_TRIED = {"try_avg": functions.avg, "try_sum": functions.sum}
#: Those that may be told to pass over nulls.
_PICKED = {
    "first": functions.first,
    "first_value": functions.first,
    "last": functions.last,
    "last_value": functions.last,
}


def own_functions(values: Any, df: DataFrame) -> Any:
    """The values with Spark's columns replaced; what is no mapping is refused elsewhere."""
    if not isinstance(values, Mapping):
        return values
    return {
        name: _own_function(name, each, df) if isinstance(each, Column) else each
        for name, each in values.items()
    }


def _own_function(name: str, column: Column, df: DataFrame) -> AnyFunction:
    if is_connect(df.sparkSession):
        raise SettingError(
            f"{name!r}: Spark Connect does not tell what a column computes.",
            where=f"values[{name!r}]",
            fix="Use Trailmark's own functions, such as tm.avg('price') for F.avg('price').",
        )
    called = called_function(column, df)
    if called is not None and called.alias not in ("", name):
        raise SettingError(
            f"{name!r} is given a column that is called {called.alias!r}.",
            where=f"values[{name!r}]",
            fix=f"Leave .alias out: the result is called what values names it, {name!r}.",
        )
    found = None if called is None else _translated(called)
    if found is None:
        raise _no_function(name, column, called)
    return found


def _translated(called: Called) -> Function | None:
    """The function that computes the same; None if there is none."""
    name, arguments = called.function, called.arguments
    if name == "count" and not called.is_distinct and len(arguments) == 1:
        return _count(arguments[0])
    if not arguments or not isinstance(arguments[0], str):
        return None
    column, more = arguments[0], arguments[1:]
    if called.is_distinct and name not in ("min", "max"):
        return functions.count_distinct(column) if name == "count" and not more else None
    if name == "percentile":
        return _percentile(column, more)
    if name == "approx_count_distinct":
        return _approximate(column, more)
    if name in _OF_A_COLUMN and not more:
        return _OF_A_COLUMN[name](column)
    if name in _TRIED and not more:
        return _TRIED[name](column, overflow="null")
    if name in _PICKED:
        skips = more[0] if more else Constant(False)
        if len(more) <= 1 and isinstance(skips, Constant) and isinstance(skips.value, bool):
            return _PICKED[name](column, ignore_nulls=skips.value)
    return None


def _percentile(column: str, more: tuple[str | Constant | None, ...]) -> Function | None:
    """``F.percentile(column, at, frequency)``, of a frequency of one."""
    if not 1 <= len(more) <= 2 or not all(isinstance(each, Constant) for each in more):
        return None
    at, *frequency = (each.value for each in more if isinstance(each, Constant))
    return functions.percentile(column, at) if frequency in ([], [1]) else None


def _approximate(column: str, more: tuple[str | Constant | None, ...]) -> Function | None:
    """``F.approx_count_distinct(column, rsd)``."""
    if not more:
        return functions.approx_count_distinct(column)
    if len(more) == 1 and isinstance(more[0], Constant):
        return functions.approx_count_distinct(column, more[0].value)
    return None


def _count(argument: str | Constant | None) -> Function | None:
    if isinstance(argument, str):
        return functions.count(argument)
    if isinstance(argument, Constant) and argument.value is not None:
        return functions.count()
    return None


def _no_function(name: str, column: Column, called: Called | None) -> SettingError:
    """What to write instead."""
    text = str(column).removeprefix("Column<'").removesuffix("'>")
    if called is not None and called.function in _known():
        what = f"{text} is more than {called.function} of a column of df"
        fix = (
            "Compute what it is to be of before, with df.withColumn, and what is made of it "
            "afterwards, with select on the result."
        )
    else:
        what = f"{text} is none of the functions that can be computed over windows"
        fix = (
            f"For example values={{{name!r}: F.avg('price')}}; the functions are "
            f"{', '.join(f'F.{each}' for each in _known())}. Compute other columns before the "
            "aggregate, with df.withColumn, or afterwards; other functions are tm.UserFunction."
        )
    return SettingError(f"{name!r}: {what}.", where=f"values[{name!r}]", fix=fix)


def _known() -> list[str]:
    return sorted(
        {
            "approx_count_distinct",
            "count",
            "count_distinct",
            "percentile",
            *_OF_A_COLUMN,
            *_TRIED,
            *_PICKED,
        }
    )
