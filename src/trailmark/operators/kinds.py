"""The kinds of operators there are, by the name that their descriptions give.

Whoever has the logs of an operator and not the operator itself (status, the command line, readers,
ticks) finds here all there is to know of it, and the operator made again, as far as its description
tells all of it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, cast

from trailmark.log import OperatorMeta
from trailmark.log.json_text import shown, text_of, whole
from trailmark.operators.aggregate.logged import AggregateForm, aggregate_caution, aggregate_title
from trailmark.operators.aggregate.rebuild import rebuild_aggregate
from trailmark.operators.barrier.logged import (
    BarrierForm,
    barrier_caution,
    barrier_title,
    rebuild_barrier,
)
from trailmark.operators.join.logged import JoinForm, join_caution, join_title
from trailmark.operators.join.rebuild import rebuild_join
from trailmark.operators.keyed.logged import KeyedForm, keyed_title
from trailmark.operators.keyed.rebuild import rebuild_keyed
from trailmark.operators.logged import LoggedForm, order_caution, understanding, unknown_operator
from trailmark.operators.protocol import AnyOperator
from trailmark.operators.sessions.logged import (
    SessionsForm,
    rebuild_sessions,
    sessions_caution,
    sessions_title,
)
from trailmark.operators.slices import SLICE_TIME, SLICE_US, Sliceable, in_slices, is_in_slices
from trailmark.operators.whole.logged import WholeForm, whole_title
from trailmark.operators.whole.rebuild import rebuild_whole
from trailmark.values import dataclass


@dataclass(frozen=True, slots=True)
class OperatorKind:
    """What is known of operators of one kind.

    Parameters
    ----------
    form
        What its logs hold. Raises ``KeyError``, ``TypeError`` or ``ValueError`` where the
        description cannot be understood.
    title
        The operator in a few words, from its description.
    rebuild
        The operator itself, from the description of its logs and from what of it is the user's own
        code: no log holds any. None stands for no code; what it has to be otherwise, the kind says.
        Raises `SettingError` or `SchemaChanged` if the code is missing or is not what wrote the
        logs, `UnknownFormat` if the description cannot be understood.
    caution
        What whoever has described it so should know before it runs; empty if there is nothing.
    """

    form: Callable[[OperatorMeta], LoggedForm]
    title: Callable[[Mapping[str, Any]], str]
    rebuild: Callable[[OperatorMeta, object], AnyOperator]
    caution: Callable[[Mapping[str, Any]], str] = lambda described: ""


def _code_caution(described: Mapping[str, Any]) -> str:
    """Nobody knows what users' code makes of an order."""
    return order_caution(described, "what goes by their order")


_KINDS = {
    "aggregate": OperatorKind(AggregateForm, aggregate_title, rebuild_aggregate, aggregate_caution),
    "barrier": OperatorKind(BarrierForm, barrier_title, rebuild_barrier, barrier_caution),
    "join": OperatorKind(JoinForm, join_title, rebuild_join, join_caution),
    "keyed": OperatorKind(KeyedForm, keyed_title, rebuild_keyed, _code_caution),
    "sessions": OperatorKind(SessionsForm, sessions_title, rebuild_sessions, sessions_caution),
    "whole": OperatorKind(WholeForm, whole_title, rebuild_whole, _code_caution),
}


def kind_of(meta: OperatorMeta) -> OperatorKind:
    """The kind of an operator; raises `UnknownFormat` if it is none of these."""
    name = meta.operator.get("operator")
    kind = _KINDS.get(name) if isinstance(name, str) else None
    if kind is None:
        raise unknown_operator(f"Operators of kind {shown(name)} are unknown to this Trailmark.")
    return kind


def rebuilt(meta: OperatorMeta, code: object) -> AnyOperator:
    """The operator that has written logs, made again: see `OperatorKind.rebuild`."""
    operator = kind_of(meta).rebuild(meta, code)
    if not is_in_slices(meta.operator):
        return operator
    with understanding():
        time = text_of(meta.operator[SLICE_TIME])
        slice_us = whole(meta.operator[SLICE_US], 1, 2**62)
    return in_slices(cast(Sliceable[Any], operator), time, slice_us)  # no others are described so


def form_of(meta: OperatorMeta) -> LoggedForm:
    """What the logs of an operator hold; raises `UnknownFormat`."""
    kind = kind_of(meta)
    with understanding():
        return kind.form(meta)


def title_of(described: Mapping[str, Any]) -> str:
    """An operator in a few words; those of unknown kinds by the name of the kind."""
    name = str(described.get("operator", "operator"))
    return _KINDS[name].title(described) if name in _KINDS else name


def caution_of(described: Mapping[str, Any]) -> str:
    """What to know of an operator before it runs; empty if there is nothing."""
    name = str(described.get("operator"))
    return _KINDS[name].caution(described) if name in _KINDS else ""
