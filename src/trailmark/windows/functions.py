"""Aggregate functions as a user names them: values without behaviour.

:mod:`trailmark.windows.builtin` and :mod:`trailmark.windows.userdefined` carry them out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import pyarrow as pa

from trailmark.errors import SettingError
from trailmark.values import dataclass

Overflow = Literal["error", "null"]
#: NumPy arrays of numbers, Arrow arrays of texts and lists, each with a value for every window.
State = dict[str, Any]

#: How far off estimates may be asked to be: less takes more memory than an exact count often does.
_LEAST_RSD, _MOST_RSD = 0.005, 0.39

#: What a description puts before the name of a function of the user's own.
_USER = "user:"


@dataclass(frozen=True, slots=True)
class Function:
    """A built-in function over one column (``None``: over tuples)."""

    name: str
    column: str | None
    overflow: Overflow = "error"
    skip_nulls: bool = False
    at: float | tuple[float, ...] | None = None
    rsd: float | None = None

    @property
    def columns(self) -> tuple[str, ...]:
        return () if self.column is None else (self.column,)

    def describe(self) -> dict[str, Any]:
        described: dict[str, Any] = {
            "function": self.name,
            "column": self.column,
            "overflow": self.overflow,
            "skip_nulls": self.skip_nulls,
        }
        if self.at is not None:
            described["at"] = list(self.at) if isinstance(self.at, tuple) else self.at
        if self.rsd is not None:
            described["rsd"] = self.rsd
        return described


def _checked(name: str, column: str, overflow: Overflow = "error") -> Function:
    if overflow not in ("error", "null"):
        raise SettingError(
            f"overflow must be 'error' or 'null', got {overflow!r}.", where=f"{name}(overflow=...)"
        )
    return Function(name, column, overflow=overflow)


def count(column: str | None = None) -> Function:
    """Number of tuples, or of tuples where the column is not null."""
    return Function("count", column)


def sum(column: str, *, overflow: Overflow = "error") -> Function:
    """Sum of the values that are not null; null if there are none.

    Integers add up to a 64-bit integer, floats to a double, ``decimal(p, s)`` to
    ``decimal(p + 10, s)``, as in Spark SQL. The running sum has 128 bits; a result that does not
    fit its type raises :class:`~trailmark.errors.ValueOverflow`, or is null if
    ``overflow="null"``.
    """
    return _checked("sum", column, overflow)


def avg(column: str, *, overflow: Overflow = "error") -> Function:
    """Mean of the values that are not null: a double, or ``decimal(p + 4, s + 4)`` of decimals."""
    return _checked("avg", column, overflow)


def min(column: str) -> Function:
    """Least value that is not null; NaN counts as greater than any number."""
    return Function("min", column)


def max(column: str) -> Function:
    """Greatest value that is not null; NaN counts as greater than any number."""
    return Function("max", column)


def stddev(column: str) -> Function:
    """Sample standard deviation; null for fewer than two values."""
    return Function("stddev", column)


def variance(column: str) -> Function:
    """Sample variance; null for fewer than two values."""
    return Function("variance", column)


def first(column: str, *, ignore_nulls: bool = False) -> Function:
    """Value of the window's first tuple, or its first value that is not null.

    Which tuple of a batch comes first, ``order_by`` of the aggregate says.
    """
    return Function("first", column, skip_nulls=ignore_nulls)


def last(column: str, *, ignore_nulls: bool = False) -> Function:
    """Value of the window's last tuple, or its last value that is not null.

    Which tuple of a batch comes last, ``order_by`` of the aggregate says.
    """
    return Function("last", column, skip_nulls=ignore_nulls)


def collect_list(column: str) -> Function:
    """The values that are not null, in the order of their tuples; an empty list if there are none.

    Which tuple of a batch comes first, ``order_by`` of the aggregate says.
    """
    return Function("collect_list", column)


def collect_set(column: str) -> Function:
    """The values that are not null, each once, as they first came. NaN is equal to NaN."""
    return Function("collect_set", column)


def count_distinct(column: str) -> Function:
    """How many different values there are that are not null. NaN is equal to NaN."""
    return Function("count_distinct", column)


def approx_count_distinct(column: str, rsd: float = 0.05) -> Function:
    """About how many different values there are that are not null. NaN is equal to NaN.

    ``rsd`` is the relative standard deviation of the answer at most: of windows with many different
    values two thirds are nearer to the truth. From it follows what a window takes: 512 bytes for
    0.05, 16 KiB for 0.01, 64 KiB for 0.005, the least; however many values there are.
    """
    is_number = isinstance(rsd, int | float) and not isinstance(rsd, bool)
    if not is_number or not _LEAST_RSD <= rsd <= _MOST_RSD:
        raise SettingError(
            f"rsd lies between {_LEAST_RSD} and {_MOST_RSD}, got {rsd!r}.",
            where="approx_count_distinct(rsd=...)",
            fix="For example approx_count_distinct('user', 0.02); count_distinct is exact.",
        )
    return Function("approx_count_distinct", column, rsd=float(rsd))


def percentile(column: str, at: float | Sequence[float] = 0.5) -> Function:
    """The exact percentile of the values that are not null: a double, between two values if there
    is none at its place; null if there are none. NaN counts as greater than any number.

    ``at`` is from 0 to 1; for a list of them the result is a list.
    """
    many = isinstance(at, Sequence) and not isinstance(at, str)
    shares = tuple(at) if isinstance(at, Sequence) else (at,)
    if not shares or not all(_is_share(each) for each in shares):
        raise SettingError(
            f"A percentile lies between 0 and 1, got {at!r}.",
            where="percentile(at=...)",
            fix="For example percentile('price', 0.9), or percentile('price', [0.5, 0.99]).",
        )
    places = tuple(float(each) for each in shares)
    return Function("percentile", column, at=places if many else places[0])


def _is_share(value: object) -> bool:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return is_number and 0 <= float(value) <= 1  # type: ignore[arg-type]


@dataclass(frozen=True)
class UserFunction:
    """A function of your own, over whole batches of windows at once.

    The state is a dictionary of arrays with a value for each window, of the types in ``state``:
    NumPy arrays of numbers and of bytes of a fixed length, Arrow arrays of strings, bytes and
    lists.

    Parameters
    ----------
    columns
        Names of the columns it reads.
    state
        Names and types of its state, without nulls: numbers, ``fixed_size_binary`` for bytes of
        your own, ``string``, ``binary``, or lists of numbers, booleans, times, decimals, strings
        or bytes. States with strings, bytes or lists are as heavy as these.
    result_type
        Type of its result.
    init
        ``init(n)`` returns the states of ``n`` empty windows.
    update
        ``update(state, window, *columns)`` returns the states after adding tuples: ``columns`` are
        Arrow arrays, ``window[i]`` is the number of the window that tuple ``i`` goes to.
    merge
        ``merge(earlier, later)`` returns the states of windows that took first the tuples of
        ``earlier``, then those of ``later``.
    result
        ``result(state)`` returns an Arrow array of ``result_type``, one value per window.
    version
        Change it when the state changes its meaning: a log of another version is refused.

    Examples
    --------
    >>> import numpy as np, pyarrow as pa
    >>> def update(state, window, price):
    ...     np.maximum.at(state["top"], window, price.to_numpy(zero_copy_only=False))
    ...     return state
    >>> highest = UserFunction(
    ...     columns=["price"],
    ...     state=pa.schema([("top", pa.float64())]),
    ...     result_type=pa.float64(),
    ...     init=lambda n: {"top": np.full(n, -np.inf)},
    ...     update=update,
    ...     merge=lambda a, b: {"top": np.maximum(a["top"], b["top"])},
    ...     result=lambda state: pa.array(state["top"]),
    ... )
    """

    columns: Sequence[str]
    state: pa.Schema
    result_type: pa.DataType
    init: Callable[[int], Mapping[str, Any]]
    update: Callable[..., Mapping[str, Any]]
    merge: Callable[[State, State], Mapping[str, Any]]
    result: Callable[[State], pa.Array]
    name: str = "user"
    version: int = 1

    def describe(self) -> dict[str, Any]:
        return {
            "function": f"{_USER}{self.name}",
            "columns": list(self.columns),
            "state": [[field.name, str(field.type)] for field in self.state],
            "result": str(self.result_type),
            "version": self.version,
        }


AnyFunction = Function | UserFunction

#: The built-in functions by their names.
BUILT_IN: Mapping[str, Callable[..., Function]] = {
    each.__name__: each
    for each in (
        *(approx_count_distinct, avg, collect_list, collect_set, count, count_distinct),
        *(first, last, max, min, percentile, stddev, sum, variance),
    )
}


def is_user_function(described: Mapping[str, Any]) -> bool:
    """Whether a function that described itself so is the user's own.

    Anything that cannot have raises ``KeyError``, ``TypeError`` or ``ValueError``.
    """
    name = described["function"]
    if not isinstance(name, str):
        raise ValueError("a function without a name")
    return name.startswith(_USER)


def function_from_description(described: Mapping[str, Any]) -> Function:
    """The built-in function that described itself so.

    Anything that cannot have raises ``KeyError``, ``TypeError`` or ``ValueError``.
    """
    name, column = described["function"], described["column"]
    if name not in BUILT_IN:
        raise ValueError("a function that is none of the built-in ones")
    if not isinstance(column, str) and not (column is None and name == "count"):
        raise ValueError(f"{name} of no column")
    at, rsd = described.get("at"), described.get("rsd")
    if (at is not None) != (name == "percentile"):
        raise ValueError(f"{name} with or without a place")
    if (rsd is not None) != (name == "approx_count_distinct"):
        raise ValueError(f"{name} with or without a deviation")
    place = None if at is None else percentile(str(column), at).at
    deviation = None if rsd is None else approx_count_distinct(str(column), rsd).rsd
    given = (described["overflow"], described["skip_nulls"], place, deviation)
    function = Function(name, column, *given)
    is_known = function.overflow in ("error", "null") and type(function.skip_nulls) is bool
    if not is_known or function.describe() != described:
        raise ValueError(f"{name} with more to it than is known")
    return function


__all__ = [
    "BUILT_IN",
    "AnyFunction",
    "Function",
    "UserFunction",
    "approx_count_distinct",
    "avg",
    "collect_list",
    "collect_set",
    "count",
    "count_distinct",
    "first",
    "function_from_description",
    "is_user_function",
    "last",
    "max",
    "min",
    "percentile",
    "stddev",
    "sum",
    "variance",
]
