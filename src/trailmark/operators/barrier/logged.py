"""The logs of barriers, for readers that do not have their code: they need none."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from trailmark.errors import SettingError, UnsupportedType
from trailmark.log import OperatorMeta
from trailmark.log.json_text import object_of, text_of
from trailmark.operators.barrier.operator import ALL_KEY, Barrier
from trailmark.operators.logged import LoggedForm, described_keys, order_caution, understanding
from trailmark.records import KIND


def described_barrier(meta: OperatorMeta) -> Barrier:
    """The barrier that described itself so.

    Anything that cannot have raises ``KeyError``, ``TypeError`` or ``ValueError``.
    """
    described = meta.operator
    if len({port.name for port in meta.ports}) < len(meta.ports):
        raise ValueError("two inputs of one name")
    order = object_of(described["order_by"]) if "order_by" in described else None
    try:
        return Barrier(
            {port.name: port.schema for port in meta.ports},
            by=[text_of(name) for name, _ in described["by"]],
            order_by=None if order is None else {k: text_of(v) for k, v in order.items()},
        )
    except (SettingError, UnsupportedType) as error:
        raise ValueError(f"no barrier that could be: {error.what}") from error


def rebuild_barrier(meta: OperatorMeta, code: object) -> Barrier:
    """The barrier that wrote these logs; there is no code in it."""
    if code is not None:
        raise SettingError(
            f"A barrier has no code, and {type(code).__name__} was given.", where="operator"
        )
    with understanding():
        return described_barrier(meta)


class BarrierForm(LoggedForm):
    """One piece: the tuples in flight."""

    def __init__(self, meta: OperatorMeta) -> None:
        described = described_barrier(meta)
        self.keys = described.keys
        self.ports = described.ports
        self.results, self.shown_schema = described.result_schema, described.shown_schema
        if not meta.result_schema.equals(self.results):
            raise ValueError("other results than those of the barrier")
        self.pieces = pa.schema([])
        self.identities = described.identities
        self._trouble_of = described.trouble

    def trouble(self, footprints: pa.RecordBatch, batch: int) -> str:
        return self._trouble_of(footprints, batch)

    def shown(self, logged: pa.Table) -> pa.Table:
        return logged.select(self.shown_schema.names)

    def shown_pieces(self, footprints: pa.Table) -> tuple[dict[str, pa.Array], pa.Table]:
        return {}, footprints.drop_columns([KIND])


def barrier_title(described: Mapping[str, Any]) -> str:
    """The operator in a few words, as far as its description can be understood."""
    keys = [name for name in described_keys(described) if name != ALL_KEY]
    return f"barrier by {', '.join(keys)}" if keys else "barrier"


def barrier_caution(described: Mapping[str, Any]) -> str:
    return order_caution(described, "which tuples belong together")
