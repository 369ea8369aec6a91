"""A written stream on the page."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from trailmark import units
from trailmark.dashboard.elements import Cell, Column, Shown, State, Table
from trailmark.inspection import ReaderStatus
from trailmark.records import NO_BATCH
from trailmark.streams.status import StreamStatus
from trailmark.watch import History
from trailmark.watch.words import what_is_read

_WRITERS = (
    Column("Writer", is_number=False),
    Column("Its batch"),
    Column("Complete up to", is_number=False),
    Column("Last heartbeat", is_number=False),
)
_READERS = (
    Column("Reader", is_number=False),
    Column("Reads", is_number=False, is_minor=True),
    Column("Needs batch"),
    Column("Behind by"),
    Column("Rows", is_minor=True),
    Column("Last seen", is_number=False),
)


def show_stream(path: str, status: StreamStatus, history: History, trouble: Sequence[str]) -> Shown:
    """A written stream, from the general to the particular."""
    stream = status.description
    by = f" by {', '.join(stream.keys)}" if stream.keys else ""
    title = (
        f"stream of {units.some(len(stream.schema), 'column')}, "
        f"{units.some(stream.buckets, 'bucket')}{by}"
    )
    state, word = _state(status)
    tables = list(_tables(status))
    return Shown("stream", path, title, state, word, list(_facts(status, history)), tables, trouble)


def _state(status: StreamStatus) -> tuple[State, str]:
    if not status.is_sound or status.heartbeat_problems:
        return "bad", "cannot be read in full"
    if status.manifests.newest == NO_BATCH:
        return "none", "no batch yet"
    return "good", "sound"


def _facts(status: StreamStatus, history: History) -> Iterator[tuple[str, Cell]]:
    yield "Last batch", units.batch(status.manifests.newest)
    if status.written_us is not None:
        yield "Written", ago(status.written_us, status.looked_us)
    points = history.after(0)
    rate = points[-1].rate if points else None
    yield "Throughput", "-" if rate is None else f"{rate:,.0f} rows/s"
    if status.held is not None:
        held = (
            f"{units.some(status.held.rows, 'row')} in {units.some(status.held.batches, 'batch')}"
        )
        yield "Held now", held
    if status.boundaries is not None:
        complete, late = status.boundaries.stream, status.boundaries.total_late_rows
        yield "Complete up to", "not known yet" if complete is None else units.moment(complete)
        yield "Late rows", f"{late:,}"
    yield "On disk", units.size(status.manifests.bytes + status.data_bytes)


def _tables(status: StreamStatus) -> Iterator[Table]:
    boundaries = {} if status.boundaries is None else status.boundaries.writers
    writers, beats = status.writers or {}, status.heartbeats or {}
    rows: list[list[Cell]] = []
    for name in sorted({*writers, *boundaries}):
        reached, beat = boundaries.get(name), beats.get(name)
        rows.append(
            [
                name,
                units.batch(writers.get(name)),
                "-" if reached is None else units.moment(reached),
                "-" if beat is None else ago(beat.sent_us, status.looked_us),
            ]
        )
    if rows:
        yield Table("writers", units.some(len(rows), "writer"), _WRITERS, rows)
    if status.readers:
        yield readers_table(status.readers, status.looked_us)


def readers_table(readers: Sequence[ReaderStatus], now_us: int) -> Table:
    """Named readers, and how far behind they are."""
    rows: list[list[Cell]] = [
        [
            (each.name, "bad") if each.problem else each.name,
            what_is_read(each),
            units.batch(each.needs),
            "-" if each.lag is None else units.some(each.lag, "batch"),
            "-" if each.lag_rows is None else f"{each.lag_rows:,}",
            "-" if each.seen_us is None else ago(each.seen_us, now_us),
        ]
        for each in readers
    ]
    return Table("readers", units.some(len(rows), "named reader"), _READERS, rows)


def ago(then_us: int, now_us: int) -> str:
    """How long ago something was; clocks of two machines may differ."""
    return f"{units.duration(max(0, now_us - then_us) // 100_000 * 100_000)} ago"
