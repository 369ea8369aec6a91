"""The status of a union, drawn."""

from __future__ import annotations

from trailmark import units
from trailmark.drawing.parts import Cell, Part, Table, line, warning_lines
from trailmark.log.storage.urls import redacted
from trailmark.streams.union.status import InputStatus, UnionStatus
from trailmark.watch.words import union_warnings

_TITLES = ("input", "path", "complete up to", "now up to", "read to batch", "newest")
_LEFT = frozenset({"input", "path", "complete up to", "now up to"})


def draw_union(status: UnionStatus, path: str) -> list[Part]:
    """The drawing, from the general to the particular; what is wrong comes last."""
    union = status.description
    streams = units.some(len(status.inputs), "stream")
    slices = units.duration(union.interval_us)
    return [
        line(Cell(path, "bold"), f": union of {streams} by {union.time}, in slices of {slices}"),
        line(_position(status)),
        *map(line, _phase(status)),
        line(),
        Table.of(_TITLES, [_row(each) for each in status.inputs], _LEFT),
        *warning_lines(list(union_warnings(status))),
    ]


def _position(status: UnionStatus) -> str:
    decision = status.decision
    if decision.until_us is None:
        return "nothing is released yet"
    text = "nothing is released yet"
    if decision.released_us is not None:
        text = f"released up to {units.moment(decision.released_us)}, in batch {decision.number}"
    waits = "" if status.slowest is None else f", waits for {status.slowest.name}"
    idle = f", idle: {', '.join(status.idle)}" if status.idle else ""
    return f"{text}{waits}{idle}; late rows: {decision.late_rows:,}"


def _phase(status: UnionStatus) -> list[str]:
    """What is tentative, where something is."""
    ahead, turn = status.decision.ahead, status.decision.turn
    whose = "" if turn is None else f"; {turn.line}"
    if ahead is None:
        return [f"STABLE, and catches up{whose}"] if turn is not None else []
    ago = units.duration(max(0, status.looked_us - ahead.began_us))
    missing = f", without {', '.join(ahead.missing)}" if ahead.missing else ""
    until = units.moment(ahead.until_us)
    return [f"{ahead.phase.value} for {ago}: tentative up to {until}{missing}{whose}"]


def _row(each: InputStatus) -> list[Cell]:
    reached = each.reached
    return [
        Cell(each.name),
        Cell(redacted(each.path)),
        Cell(_time(None if reached is None else reached.boundary_us)),
        Cell(_time(each.boundary_us)),
        Cell("-" if reached is None else units.batch(reached.end - 1)),
        Cell("-" if each.newest is None else units.batch(each.newest)),
    ]


def _time(time_us: int | None) -> str:
    return "-" if time_us is None else units.moment(time_us)
