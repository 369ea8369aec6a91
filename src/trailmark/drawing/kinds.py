"""Whatever there is at a path, drawn."""

from __future__ import annotations

from trailmark.drawing.leases import draw_lease
from trailmark.drawing.operators import draw_operator
from trailmark.drawing.parts import Part
from trailmark.drawing.streams import draw_stream
from trailmark.drawing.unions import draw_union
from trailmark.inspection import OperatorStatus
from trailmark.leases.status import LeaseStatus
from trailmark.streams.status import StreamStatus
from trailmark.watch.pictures import Picture


def draw(status: Picture, path: str) -> list[Part]:
    """What ``trailmark status`` says of it."""
    if isinstance(status, OperatorStatus):
        return draw_operator(status, path)
    if isinstance(status, StreamStatus):
        return draw_stream(status, path)
    if isinstance(status, LeaseStatus):
        return draw_lease(status, path)
    return draw_union(status, path)
