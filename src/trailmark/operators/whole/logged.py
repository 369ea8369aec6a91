"""The logs of whole operators, for readers that do not have their code."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from trailmark.log import OperatorMeta
from trailmark.log.json_text import text_of
from trailmark.operators.logged import LoggedForm
from trailmark.operators.protocol import Port
from trailmark.operators.whole.operator import Whole, whole_trouble
from trailmark.records import INPUT_PORT, KIND


class WholeForm(LoggedForm):
    """No keys: a bucket has one state, whose bytes only its code understands."""

    def __init__(self, meta: OperatorMeta) -> None:
        for name in meta.operator["by"]:
            meta.input_schema.field(text_of(name))
        if [port.name for port in meta.ports] != [INPUT_PORT]:
            raise ValueError("other inputs than a whole operator has")
        self.keys = ()
        self.ports = (Port(INPUT_PORT, meta.input_schema),)
        self.results = self.shown_schema = meta.result_schema
        self.pieces = pa.schema([])
        self.identities = Whole.identities

    def trouble(self, footprints: pa.RecordBatch, batch: int) -> str:
        return whole_trouble(footprints, batch)

    def shown(self, logged: pa.Table) -> pa.Table:
        return logged

    def shown_pieces(self, footprints: pa.Table) -> tuple[dict[str, pa.Array], pa.Table]:
        return {}, footprints.drop_columns([KIND])


def whole_title(described: Mapping[str, Any]) -> str:
    """The operator in a few words, as far as its description can be understood."""
    about = described.get("about")
    name = about.get("name") if isinstance(about, dict) else None
    return str(name or "operator")
