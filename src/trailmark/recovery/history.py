"""The input log as a state looks back into it."""

from __future__ import annotations

from collections.abc import Sequence

from trailmark.log import PortRows, StreamLog, read_ports
from trailmark.operators.protocol import Port

#: Batches that are remembered: who looks back often looks back at the same ones.
_REMEMBERED = 4


class InputHistory:
    """Reads what a state looks back at. Implements `History`."""

    def __init__(self, inputs: StreamLog, ports: Sequence[Port]) -> None:
        self._inputs = inputs
        self._ports = ports
        self._known: dict[int, PortRows] = {}

    def rows(self, batch: int) -> PortRows:
        found = self._known.get(batch)
        if found is None:
            found = read_ports(self._inputs.read(batch), self._ports)
            if len(self._known) == _REMEMBERED:
                del self._known[next(iter(self._known))]
            self._known[batch] = found
        return found


class NoHistory:
    """For a state that begins empty and is thrown away: it has nothing to look back at."""

    def rows(self, batch: int) -> PortRows:
        raise AssertionError(f"there is no batch {batch}")
