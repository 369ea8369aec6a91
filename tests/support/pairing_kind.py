"""Pairings as a kind of operator: what one adds to the registry, here for the time of a test.

With it, whoever only has their logs can read them: status, verification, the command line, readers.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any
from unittest import mock

import pyarrow as pa

from tests.support.pairing import Pairing
from trailmark.log import OperatorMeta
from trailmark.operators import kinds
from trailmark.operators.logged import LoggedForm, understanding
from trailmark.records import KIND


class PairingForm(LoggedForm):
    """Anything that is no description of a pairing raises ``KeyError``, ``TypeError`` or
    ``ValueError``."""

    keys = ("key",)
    moments = frozenset({"at"})

    def __init__(self, meta: OperatorMeta) -> None:
        left, right = meta.operator["delays_us"]
        described = Pairing((left, right))
        self.ports = described.ports
        self.results = self.shown_schema = described.result_schema
        self.pieces = pa.schema([self.results.field(name) for name in self.keys])
        self.identities = described.identities
        if meta.ports != tuple(port.logged for port in self.ports):
            raise ValueError("other inputs than those of a pairing")
        self._trouble_of = described.trouble

    def trouble(self, footprints: pa.RecordBatch, batch: int) -> str:
        return self._trouble_of(footprints, batch)

    def shown(self, logged: pa.Table) -> pa.Table:
        return logged

    def shown_pieces(self, footprints: pa.Table) -> tuple[dict[str, pa.Array], pa.Table]:
        state = footprints.drop_columns([*self.keys, KIND])
        return {name: footprints[name] for name in self.keys}, state


def _title(described: Mapping[str, Any]) -> str:
    return "pairs of left and right by key"


def _rebuild(meta: OperatorMeta, code: object) -> Pairing:
    """A pairing is described whole, and takes no code."""
    assert code is None
    with understanding():
        left, right = meta.operator["delays_us"]
        return Pairing((left, right))


@contextmanager
def known_pairings() -> Iterator[None]:
    """The registry has one entry more."""
    pairing = kinds.OperatorKind(PairingForm, _title, _rebuild)
    with mock.patch.dict(kinds._KINDS, pairing=pairing):
        yield
