"""The status of a written stream, drawn."""

from __future__ import annotations

from collections.abc import Iterator

from trailmark import units
from trailmark.drawing.parts import Cell, Part, Table, line
from trailmark.drawing.readers import closing_parts
from trailmark.records import NO_BATCH
from trailmark.streams.description import StreamDescription
from trailmark.streams.status import Amount, StreamStatus
from trailmark.watch.words import stream_warnings

_TITLES = ("", "batches", "rows", "size", "files")


def draw_stream(status: StreamStatus, path: str) -> list[Part]:
    """The drawing, from the general to the particular; what is wrong comes last."""
    title = line(Cell(path, "bold"), f": {_stream_text(status.description)}")
    drawn: list[Part] = [title, line(_position(status))]
    amounts, written = _amounts(status), writer_table(status)
    if amounts:
        drawn += [line(), Table.of(_TITLES, amounts, frozenset({""}))]
    drawn += [line(), *map(line, _facts(status))]
    if written is not None:
        drawn += [line(), written]
    return [*drawn, *closing_parts(status, stream_warnings(status), path)]


def writer_table(status: StreamStatus) -> Table | None:
    """Those who write, if any; of those who promise something, how far they have got."""
    boundaries = {} if status.boundaries is None else status.boundaries.writers
    names = sorted({*(status.writers or {}), *boundaries})
    if not names:
        return None
    titles = ["query", "its batch"]
    rows = [[Cell(name), Cell(units.batch((status.writers or {}).get(name)))] for name in names]
    if boundaries:
        titles += ["complete up to", "last heartbeat"]
        for name, row in zip(names, rows, strict=True):
            reached, beat = boundaries.get(name), (status.heartbeats or {}).get(name)
            ago = None if beat is None else max(0, status.looked_us - beat.sent_us)
            row += [
                Cell("-" if reached is None else units.moment(reached)),
                Cell("-" if ago is None else f"{units.duration(ago)} ago"),
            ]
    return Table.of(titles, rows, frozenset({"query", "complete up to"}))


def _stream_text(stream: StreamDescription) -> str:
    text = f"stream of {units.some(len(stream.schema), 'column')}"
    by = f" by {', '.join(stream.keys)}" if stream.keys else ""
    return f"{text}, {units.some(stream.buckets, 'bucket')}{by}"


def _position(status: StreamStatus) -> str:
    manifests = status.manifests
    if manifests.newest == NO_BATCH:
        return "no batch yet"
    text = f"batches {manifests.oldest} to {manifests.newest}"
    if manifests.oldest == manifests.newest:
        text = f"batch {manifests.newest}"
    if status.written_us is None:
        return text
    ago = max(0, status.looked_us - status.written_us)
    return f"{text}, written {units.duration(ago)} ago ({units.moment(status.written_us)})"


def _amounts(status: StreamStatus) -> list[list[Cell]]:
    recent = status.recent
    looked = "" if recent is None else f"last {units.some(recent.batches, 'batch')}"
    amounts = {
        "last batch": status.newest,
        looked: recent,
        "held now": status.held,
        "since the start": status.total,
    }
    return [_amount_row(name, amount) for name, amount in amounts.items() if amount is not None]


def _amount_row(name: str, amount: Amount) -> list[Cell]:
    return [
        Cell(name),
        Cell(f"{amount.batches:,}"),
        Cell(f"{amount.rows:,}"),
        Cell(units.size(amount.bytes)),
        Cell("" if amount.files is None else f"{amount.files:,}"),
    ]


def _facts(status: StreamStatus) -> Iterator[str]:
    column = status.description.time_column
    if column is None:
        yield "event time        none: a time means when a batch was written"
    elif status.times is None:
        yield f"event time        {column}: none yet"
    else:
        first, last = units.moment(status.times.min_us), units.moment(status.times.max_us)
        yield f"event time        {column}: {first} to {last}"
    if status.boundaries is not None:
        stream, late = status.boundaries.stream, status.boundaries.total_late_rows
        reached = "not known yet" if stream is None else units.moment(stream)
        yield f"complete up to    {reached}; late rows: {late:,}"
    yield (
        f"on disk           data {units.size(status.data_bytes)} in "
        f"{units.some(status.data_files, 'file')}, manifests {units.size(status.manifests.bytes)} "
        f"in {units.some(status.manifests.files, 'file')}"
    )
