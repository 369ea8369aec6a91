"""The logs of keyed operators, for readers that do not have their code."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from trailmark.log import OperatorMeta
from trailmark.log.json_text import object_of, text_of, whole
from trailmark.log.meta import schema_from_json
from trailmark.operators.identities import Identities
from trailmark.operators.keyed.arguments import INITIAL_PORT, initial_port
from trailmark.operators.keyed.columns import column_of
from trailmark.operators.keyed.footprints import TIMES, keyed_trouble, null_trouble
from trailmark.operators.logged import LoggedForm, described_keys
from trailmark.operators.protocol import Port
from trailmark.records import INPUT_PORT, KIND
from trailmark.state.keys import KeyLayout

_LONGEST_DELAY_US = 1 << 60


class KeyedForm(LoggedForm):
    """Keys, and a state whose columns the description names; others may have been added since.

    Anything that is no description of a keyed operator raises ``KeyError``, ``TypeError`` or
    ``ValueError``.
    """

    def __init__(self, meta: OperatorMeta) -> None:
        schema, described = meta.input_schema, meta.operator
        self.keys = tuple(text_of(name) for name, _ in described["by"])
        fields = [schema.field(name) for name in self.keys]
        time = None if described["time"] is None else text_of(described["time"])
        if time is not None and not pa.types.is_timestamp(schema.field(time).type):
            raise ValueError(f"{time} is no time")
        delay_us = whole(described["delay_us"], 0, _LONGEST_DELAY_US)
        try:
            self._state = schema_from_json(object_of(described["state"]))
        except (OSError, pa.ArrowException) as error:
            raise ValueError(f"no columns of a state ({error})") from error
        self._state_columns = {f.name: column_of(f.name, f.type, {}) for f in self._state}
        layout = KeyLayout(fields)
        self.ports = (Port(INPUT_PORT, schema, time, delay_us),)
        if len(meta.ports) > 1:
            self.ports += (initial_port(pa.schema(fields), self._state),)
        if [port.name for port in meta.ports] != [INPUT_PORT, INITIAL_PORT][: len(self.ports)]:
            raise ValueError("other inputs than a keyed operator has")
        self.identities = Identities(layout, has_start=False)
        self.results = self.shown_schema = meta.result_schema
        self.pieces = pa.schema(fields)
        self.moments = frozenset(TIMES)

    def trouble(self, footprints: pa.RecordBatch, batch: int) -> str:
        wrong = keyed_trouble(footprints, self.identities, self._state, batch)
        return wrong or null_trouble(footprints, self._state_columns)

    def shown(self, logged: pa.Table) -> pa.Table:
        return logged

    def shown_pieces(self, footprints: pa.Table) -> tuple[dict[str, pa.Array], pa.Table]:
        left_out = {*self.keys, KIND}
        state = [name for name in footprints.schema.names if name not in left_out]
        return {name: footprints[name] for name in self.keys}, footprints.select(state)


def keyed_title(described: Mapping[str, Any]) -> str:
    """The operator in a few words, as far as its description can be understood."""
    about, keys = described.get("about"), described_keys(described)
    name = about.get("name") if isinstance(about, dict) else None
    return f"{name or 'operator'} by {', '.join(keys)}" if keys else str(name or "operator")
