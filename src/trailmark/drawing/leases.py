"""The status of a lease, drawn."""

from __future__ import annotations

from trailmark import units
from trailmark.drawing.parts import Cell, Line, Part, Table, line
from trailmark.leases.status import LeaseStatus, WaitingStatus

_TITLES = ("waiting", "host", "process", "readiness")
_LEFT = frozenset({"waiting", "host", "readiness"})


def draw_lease(status: LeaseStatus, path: str) -> list[Part]:
    """The drawing: who is active, then who waits."""
    lines = [line(Cell(path, "bold"), ": lease"), *_active(status)]
    if not status.waiting:
        return [*lines, line("nobody waits")]
    return [*lines, line(), Table.of(_TITLES, [_row(each) for each in status.waiting], _LEFT)]


def _active(status: LeaseStatus) -> list[Line]:
    term = status.term
    if term is None:
        return [line(Cell("nobody has had it yet", "warning"))]
    if term.problem:
        return [line(Cell(f"! {term.problem}", "bad"))]
    if term.is_released:
        return [line(Cell(f"free: {term.holder} has given it back", "warning"))]
    length = units.duration(term.term_us)
    watched = units.duration(status.watched_us)
    if status.has_run_out:
        text = f"run out: {term.holder} was silent for {watched}, a term is {length}"
        return [line(Cell(text, "bad"))]
    since = f"turn {term.turn + 1}, since {units.moment(term.taken_us)} by its clock"
    seen = "renewed while looked at" if status.renewed else f"not renewed for {watched}"
    return [
        line("active: ", Cell(str(term.holder), "good"), f", {since}"),
        line(f"a term is {length}; {seen}"),
    ]


def _row(each: WaitingStatus) -> list[Cell]:
    holder = each.waiting.holder
    readiness = each.waiting.problem or each.waiting.readiness
    text = readiness if each.is_there else f"silent; was: {readiness}"
    return [
        Cell(holder.name),
        Cell(holder.host),
        Cell(str(holder.pid)),
        Cell(text, "plain" if each.is_there else "warning"),
    ]
