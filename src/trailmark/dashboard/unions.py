"""A union on the page."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from trailmark import units
from trailmark.dashboard.elements import Cell, Column, Shown, State, Table
from trailmark.dashboard.streams import ago
from trailmark.log.storage.urls import redacted
from trailmark.streams.union.ahead import Phase
from trailmark.streams.union.status import InputStatus, UnionStatus

_COLUMNS = (
    Column("Input", is_number=False),
    Column("Path", is_number=False, is_minor=True),
    Column("State", is_number=False),
    Column("Complete up to", is_number=False, is_minor=True),
    Column("Now up to", is_number=False),
    Column("Read to batch"),
    Column("Newest"),
)


def show_union(path: str, status: UnionStatus, trouble: Sequence[str]) -> Shown:
    """A union, from the general to the particular."""
    union = status.description
    title = (
        f"union of {units.some(len(status.inputs), 'stream')} by {union.time}, in slices of "
        f"{units.duration(union.interval_us)}"
    )
    state, word = _state(status)
    rows = [_row(each, status) for each in status.inputs]
    table = Table("inputs", units.some(len(rows), "input"), _COLUMNS, rows)
    return Shown("union", path, title, state, word, list(_facts(status)), [table], trouble)


def _state(status: UnionStatus) -> tuple[State, str]:
    if not status.is_sound:
        return "bad", "cannot be read in full"
    phase = status.decision.phase
    missing = () if status.decision.ahead is None else status.decision.ahead.missing
    if phase is Phase.STABLE:
        return "good", phase.value
    if status.decision.waits_for_turn and not missing:
        return "warning", f"{phase.value}, waits for its turn"
    return "warning", f"{phase.value}, without {', '.join(missing)}" if missing else phase.value


def _facts(status: UnionStatus) -> Iterator[tuple[str, Cell]]:
    decision = status.decision
    yield "Last batch", units.batch(decision.number)
    released = decision.released_us
    yield "Released up to", "nothing yet" if released is None else units.moment(released)
    if status.slowest is not None:
        yield "Waits for", status.slowest.name
    if decision.ahead is not None:
        yield "Tentative up to", (units.moment(decision.ahead.until_us), "warning")
        yield "Tentative since", ago(decision.ahead.began_us, status.looked_us)
    if decision.turn is not None:
        yield "Turn", decision.turn.line
    yield "Late rows", f"{decision.late_rows:,}"


def _row(each: InputStatus, status: UnionStatus) -> list[Cell]:
    reached, ahead = each.reached, status.decision.ahead
    is_missing = ahead is not None and each.name in ahead.missing
    state: Cell = ("missing", "warning") if is_missing else ("there", "good")
    if each.name in status.idle:
        state = "idle"
    if each.problem:
        state = ("cannot be read", "bad")
    return [
        each.name,
        redacted(each.path),
        state,
        _time(None if reached is None else reached.boundary_us),
        _time(each.boundary_us),
        "-" if reached is None else units.batch(reached.end - 1),
        "-" if each.newest is None else units.batch(each.newest),
    ]


def _time(time_us: int | None) -> str:
    return "-" if time_us is None else units.moment(time_us)
