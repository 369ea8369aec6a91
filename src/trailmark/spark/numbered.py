"""Operators whose results are the same on every replica of a query, number by number.

A union releases its rows slice by slice, in an order that depends on its streams alone. An operator
right behind it that takes slice after slice gives the same results in the same order wherever it
runs. What would make them differ is refused here.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from pyspark.sql import DataFrame

from trailmark.errors import SettingError, Unreachable
from trailmark.log import open_storage, read_meta
from trailmark.log.json_text import shown
from trailmark.operators.protocol import AnyOperator
from trailmark.operators.slices import in_slices
from trailmark.spark.boundary import union_of
from trailmark.spark.internals import changing_expression
from trailmark.streams.heartbeats import newest_heartbeats
from trailmark.streams.manifest import manifest_log, newest_manifest
from trailmark.streams.promises import promised

_ARGUMENT = "numbered"


def numbered(df: DataFrame, operator: Any) -> AnyOperator:
    """The operator, taking its input slice by slice."""
    if operator.uses_clock:
        raise SettingError(
            "The operator goes by the clock, and no two replicas look at it at the same time.",
            where=_ARGUMENT,
            fix="Use timers and times to live in event time, or leave numbered out.",
        )
    time = _time_of(operator)
    union = union_of(df, time, in_order=True)
    if union is None:
        raise SettingError(
            f"Its input does not come from a tm.union with times in column {time!r}, or not row by "
            "row and in its order: rows would be taken in an order that no other replica has.",
            where=_ARGUMENT,
            fix="Put the operator right behind a tm.union of Trailmark streams, with filters and "
            "columns in between at most. An operator behind an operator goes into a query of its "
            "own, which follows the replicas of the one before.",
        )
    changing = changing_expression(df)
    if changing is not None:
        raise SettingError(
            f"{changing} between the union and the operator is something else whenever it is "
            "computed, so no two replicas would see the same.",
            where=_ARGUMENT,
            fix="Leave it out, or compute it before the rows are written to the streams.",
        )
    options = {name.lower(): value for name, value in union.options}
    if "idleafter" in options:
        raise SettingError(
            "With idle_after a union goes on by the clock, and no two replicas look at it at the "
            "same time.",
            where=f"{_ARGUMENT}, tm.union(idle_after=...)",
            fix="Give the writers of its streams a delay and heartbeats instead (docs/streams.md).",
        )
    _check_promises(json.loads(options["inputs"]))
    return in_slices(operator, time, int(options["interval"]))


def _time_of(operator: AnyOperator) -> str:
    """The column that puts the operator's input in order."""
    (port, *_) = operator.ports
    if port.event_time is not None:
        return port.event_time
    order = operator.describe().get("order_by")
    if not order:
        raise SettingError(
            "The operator has no event time, so nothing says in which order its rows are taken.",
            where=_ARGUMENT,
            fix="Name the time column of the union first in order_by.",
        )
    return str(order[0])


def _check_promises(inputs: Mapping[str, str]) -> None:
    """What is late in a stream without promises depends on when it was looked at."""
    for name, path in inputs.items():
        if _promises_nothing(path):
            raise SettingError(
                f"The writers of {shown(name)} ({path}) do not say up to which time the stream is "
                "complete, so which of its rows are late would differ between replicas.",
                where=f"{_ARGUMENT}, tm.union",
                fix="Write it with the option delay (docs/streams.md).",
            )


def _promises_nothing(path: str) -> bool:
    try:
        storage = open_storage(path)
        meta = read_meta(storage)
        if meta is None:
            return False  # the union says what is wrong with it
        newest, _ = newest_manifest(manifest_log(storage, meta))
        return newest is not None and promised(newest, newest_heartbeats(storage)) is None
    except Unreachable:
        return False  # a union that has run before: it was looked at then
