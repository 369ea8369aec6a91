"""The status of a lease as lines of text."""

from __future__ import annotations

from trailmark import units
from trailmark.cli.table import Cell, columns
from trailmark.cli.terminal import Paint
from trailmark.leases.status import LeaseStatus, WaitingStatus

_TITLES = ("waiting", "host", "process", "readiness")
_LEFT = frozenset({"waiting", "host", "readiness"})


def draw_lease(status: LeaseStatus, path: str, paint: Paint) -> list[str]:
    """The picture: who is active, then who waits."""
    lines = [f"{paint(path, 'bold')}: lease", *_active(status, paint)]
    if not status.waiting:
        return [*lines, "nobody waits"]
    return [*lines, "", *columns(_TITLES, list(map(_row, status.waiting)), paint, left=_LEFT)]


def _active(status: LeaseStatus, paint: Paint) -> list[str]:
    term = status.term
    if term is None:
        return [paint("nobody has had it yet", "warning")]
    if term.problem:
        return [paint(f"! {term.problem}", "bad")]
    if term.is_released:
        return [paint(f"free: {term.holder} has given it back", "warning")]
    length = units.duration(term.term_us)
    watched = units.duration(status.watched_us)
    if status.has_run_out:
        return [
            paint(f"run out: {term.holder} was silent for {watched}, a term is {length}", "bad")
        ]
    since = f"turn {term.turn + 1}, since {units.moment(term.taken_us)} by its clock"
    seen = "renewed while looked at" if status.renewed else f"not renewed for {watched}"
    return [
        f"active: {paint(str(term.holder), 'good')}, {since}",
        f"a term is {length}; {seen}",
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
