"""The kinds of operators there are, by the name that their descriptions give.

Whoever has the logs of an operator and not the operator itself (status, the command line, readers,
ticks) finds here all there is to know of it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from trailmark.errors import UnknownFormat
from trailmark.log import OperatorMeta
from trailmark.log.damage import USE_A_NEWER_ONE
from trailmark.log.json_text import shown
from trailmark.log.meta import META_PATH
from trailmark.operators.aggregate.logged import AggregateForm, aggregate_title
from trailmark.operators.keyed.logged import KeyedForm, keyed_title
from trailmark.operators.logged import LoggedForm
from trailmark.operators.whole.logged import WholeForm, whole_title
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
    """

    form: Callable[[OperatorMeta], LoggedForm]
    title: Callable[[Mapping[str, Any]], str]


_KINDS = {
    "aggregate": OperatorKind(AggregateForm, aggregate_title),
    "keyed": OperatorKind(KeyedForm, keyed_title),
    "whole": OperatorKind(WholeForm, whole_title),
}


def kind_of(meta: OperatorMeta) -> OperatorKind:
    """The kind of an operator; raises `UnknownFormat` if it is none of these."""
    name = meta.operator.get("operator")
    kind = _KINDS.get(name) if isinstance(name, str) else None
    if kind is None:
        raise _not_understood(f"Operators of kind {shown(name)} are unknown to this Trailmark.")
    return kind


def form_of(meta: OperatorMeta) -> LoggedForm:
    """What the logs of an operator hold; raises `UnknownFormat`."""
    kind = kind_of(meta)
    try:
        return kind.form(meta)
    except (KeyError, TypeError, ValueError) as error:
        raise _not_understood(
            f"The description of the operator cannot be understood ({error!r})."
        ) from error


def title_of(described: Mapping[str, Any]) -> str:
    """An operator in a few words; those of unknown kinds by the name of the kind."""
    name = str(described.get("operator", "operator"))
    return _KINDS[name].title(described) if name in _KINDS else name


def _not_understood(what: str) -> UnknownFormat:
    return UnknownFormat(what, where=META_PATH, fix=USE_A_NEWER_ONE)
