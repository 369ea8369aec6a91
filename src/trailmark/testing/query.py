"""What is tested: the arguments of an operator on Spark, without a DataFrame.

A `Query` is bound to the columns of the batches when it runs. For an operator of another kind, add
a function beside `aggregate` that takes the arguments of its public function and returns one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from functools import partial
from typing import Any

import pyarrow as pa

from trailmark.checkpoint.policy import Policy
from trailmark.engine.policies import check_policy
from trailmark.errors import SettingError
from trailmark.operators.aggregate.arguments import AnyWindow, key_names
from trailmark.operators.barrier import Barrier
from trailmark.operators.join import Join
from trailmark.operators.join.arguments import SIDES, join_keys
from trailmark.operators.join.condition import Condition
from trailmark.operators.keyed import Keyed
from trailmark.operators.late import Late
from trailmark.operators.protocol import AnyOperator
from trailmark.operators.sessions import windowed
from trailmark.operators.user_code import is_keyed
from trailmark.operators.whole import Whole
from trailmark.testing.own_code import OwnCode
from trailmark.values import dataclass
from trailmark.windows.functions import AnyFunction
from trailmark.windows.interval import Interval
from trailmark.windows.last_tuples import LastTuples


@dataclass(frozen=True, slots=True)
class Query:
    """An operator that does not know its columns yet.

    Parameters
    ----------
    build
        Makes the operator for the columns of its inputs.
    by
        The key columns: rows that are equal in them go to the same bucket. Without any, there is
        only one bucket.
    inputs
        What its inputs are called, if it has several.
    cuts_groups
        Whether ``build`` takes a ``group_size``, for the policy that needs one.
    """

    build: Callable[..., AnyOperator]
    by: tuple[str, ...] = ()
    inputs: tuple[str, ...] = ()
    cuts_groups: bool = False


def aggregate(
    *,
    by: str | Sequence[str],
    window: AnyWindow,
    values: Mapping[str, AnyFunction],
    late: Late = "drop",
    order_by: str | Sequence[str] | None = None,
) -> Query:
    """What :func:`trailmark.aggregate` computes, to be tested by :func:`run`.

    The arguments are those of :func:`trailmark.aggregate`.

    Examples
    --------
    >>> import trailmark as tm
    >>> query = aggregate(by="item", window=tm.count_window(2), values={"n": tm.sum("price")})
    """
    build = partial(windowed, by=by, window=window, values=values, late=late, order_by=order_by)
    return Query(build, tuple(key_names(by, may_be_none=True)))


def apply(
    operator: Any,
    *,
    schema: pa.Schema,
    by: str | Sequence[str] | None = None,
    time: str | None = None,
    delay: str | timedelta = "0 seconds",
    late: Late = "drop",
    order_by: str | Sequence[str] | None = None,
) -> Query:
    """What :func:`trailmark.apply` runs, to be tested by :func:`run`.

    The arguments are those of :func:`trailmark.apply`; ``schema`` is one of Arrow's.

    Examples
    --------
    >>> class Count:
    ...     state = {"n": pa.int64()}
    ...
    ...     def process(self, keys, rows, state):
    ...         state["n"] += keys.counts()
    ...         return keys.table(n=state["n"])
    >>> query = apply(Count, by="item", schema=pa.schema([("item", pa.int64()), ("n", pa.int64())]))
    """
    if not isinstance(schema, pa.Schema):
        raise SettingError(
            f"schema must be a schema of Arrow's, got {schema!r}.",
            where="schema",
            fix='For example pa.schema([("item", pa.int64()), ("n", pa.int64())]).',
        )
    keys = () if by is None else tuple(key_names(by))
    if is_keyed(operator):
        build: Callable[..., AnyOperator] = partial(
            Keyed,
            user=operator,
            by=keys,
            output=schema,
            time=time,
            delay=delay,
            late=late,
            order_by=order_by,
        )
    else:
        build = partial(Whole, user=operator, output=schema, by=keys, order_by=order_by)
    return Query(build, keys)


def join(
    *,
    on: str | Sequence[str],
    within: Interval | None = None,
    windows: tuple[LastTuples, LastTuples] | None = None,
    how: str = "inner",
    condition: Condition | None = None,
    late: Late = "drop",
    order_by: str | tuple[str, str] | None = None,
    suffixes: tuple[str, str] = ("_left", "_right"),
) -> Query:
    """What :func:`trailmark.join` computes, to be tested by :func:`run`.

    The arguments are those of :func:`trailmark.join`; a condition is a function. Batches are
    dictionaries with the rows of ``left`` and ``right``.

    Examples
    --------
    >>> import trailmark as tm
    >>> query = join(on="item", windows=(tm.last_tuples(2), tm.last_tuples(0)))
    """
    build = partial(
        Join,
        on=on,
        within=within,
        windows=windows,
        how=how,
        condition=condition,
        late=late,
        order_by=order_by,
        suffixes=suffixes,
    )
    spans_keys = any(isinstance(each, LastTuples) and each.spans_keys for each in windows or ())
    return Query(build, () if spans_keys else tuple(join_keys(on)), SIDES, cuts_groups=True)


def barrier(
    inputs: Sequence[str],
    *,
    by: str | Sequence[str] | None = None,
    order_by: str | Mapping[str, str] | None = None,
) -> Query:
    """What :func:`trailmark.barrier` computes, to be tested by :func:`run`.

    The arguments are those of :func:`trailmark.barrier`, but of the inputs only the names. Batches
    are dictionaries with the rows of each.

    Examples
    --------
    >>> query = barrier(["pressed", "heated"], by="line", order_by="at")
    """
    keys = () if by is None else tuple(key_names(by))
    names = tuple(inputs)
    build = partial(_barrier, names=names, by=keys, order_by=order_by)
    return Query(build, keys, names)


def _barrier(*schemas: pa.Schema, names: Sequence[str], **given: Any) -> Barrier:
    return Barrier(dict(zip(names, schemas, strict=True)), **given)


class Bound:
    """A query for given columns; every operator that it makes is one of a new process."""

    def __init__(self, query: Query, schemas: Sequence[pa.Schema], policy: Policy) -> None:
        self.query = query
        self._schemas = schemas
        self._group_size = policy.writes_groups_of
        self._code = OwnCode(query)
        check_policy(self.operator(), policy)

    def operator(self) -> AnyOperator:
        query = self._code.new()
        groups = {"group_size": self._group_size} if query.cuts_groups else {}
        return query.build(*self._schemas, **groups)


def as_query(operator: object) -> Query:
    """What users give to `run`."""
    if isinstance(operator, Query):
        return operator
    raise SettingError(
        f"operator must say what is computed, got {operator!r}.",
        where="operator",
        fix="For example tm.testing.aggregate(by='item', window=tm.count_window(10), "
        "values={'n': tm.count()}), or tm.testing.apply(Operator, by='item', schema=...).",
    )
