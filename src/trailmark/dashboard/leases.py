"""A lease on the page."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from trailmark import units
from trailmark.dashboard.elements import Cell, Column, Shown, State, Table
from trailmark.leases.status import LeaseStatus, WaitingStatus

_COLUMNS = (
    Column("Waits", is_number=False),
    Column("Host", is_number=False, is_minor=True),
    Column("Process", is_minor=True),
    Column("Readiness", is_number=False),
)


def show_lease(path: str, status: LeaseStatus, trouble: Sequence[str]) -> Shown:
    """Who is active, and who would take over."""
    state, word = _state(status)
    tables = []
    if status.waiting:
        rows = [_row(each) for each in status.waiting]
        tables.append(Table("waiting", f"{len(rows):,} waiting", _COLUMNS, rows))
    title = "lease"
    if status.term is not None:
        title = f"lease, a term is {units.duration(status.term.term_us)}"
    return Shown("lease", path, title, state, word, list(_facts(status)), tables, trouble)


def _state(status: LeaseStatus) -> tuple[State, str]:
    term = status.term
    if term is None:
        return "none", "nobody has had it yet"
    if term.problem:
        return "bad", "cannot be read in full"
    if term.is_released:
        return "none", "free"
    if status.has_run_out:
        return "bad", "nobody is active"
    return "good", f"{term.holder.name} is active"


def _facts(status: LeaseStatus) -> Iterator[tuple[str, Cell]]:
    term = status.term
    if term is None or term.problem:
        return
    yield ("Given back by" if term.is_released else "Had by"), str(term.holder)
    yield "Turn", f"{term.turn + 1:,}"
    yield "Since, by its clock", units.moment(term.taken_us)
    if not term.is_released:
        heard = "just now" if status.renewed else f"{units.duration(status.watched_us)} ago"
        yield "Heard of", heard


def _row(each: WaitingStatus) -> list[Cell]:
    holder = each.waiting.holder
    readiness: Cell = each.waiting.readiness or "-"
    if each.waiting.problem:
        readiness = (each.waiting.problem, "bad")
    elif not each.is_there:
        readiness = (f"silent; was: {each.waiting.readiness}", "warning")
    return [holder.name, holder.host, str(holder.pid), readiness]
