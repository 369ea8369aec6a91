"""Named readers, drawn."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from trailmark import units
from trailmark.drawing.parts import Cell, Part, Table, line, warning_lines
from trailmark.inspection import OperatorStatus, ReaderStatus
from trailmark.streams.status import StreamStatus
from trailmark.watch.words import reader_warnings, what_is_read

_TITLES = ("reader", "reads", "needs", "lag", "rows", "last seen")
_LEFT = frozenset({"reader", "reads"})


def reader_table(readers: Sequence[ReaderStatus], now_us: int) -> Table:
    """A table of readers; rows are left out where nobody knows them."""
    rows = [_row(reader, now_us) for reader in readers]
    titles = list(_TITLES)
    if all(reader.lag_rows is None for reader in readers):
        place = titles.index("rows")
        del titles[place]
        rows = [[*row[:place], *row[place + 1 :]] for row in rows]
    return Table.of(titles, rows, _LEFT)


def closing_parts(
    status: OperatorStatus | StreamStatus, warnings: Iterable[str], path: str
) -> list[Part]:
    """How a drawing ends: its readers, then what is wrong, with them and otherwise."""
    readers: list[Part] = []
    if status.readers:
        readers = [line(), reader_table(status.readers, status.looked_us)]
    return [*readers, *warning_lines([*warnings, *reader_warnings(status.readers, path)])]


def held_text(readers: Sequence[str], batch: int) -> str:
    """Who keeps a log from being trimmed any further."""
    if len(readers) == 1:
        return f"reader {readers[0]} needs batch {batch} and later"
    return f"readers {', '.join(readers)} hold back batch {batch} and later"


def _row(reader: ReaderStatus, now_us: int) -> list[Cell]:
    if reader.problem:
        return [Cell(reader.name, "bad"), *[Cell("-")] * (len(_TITLES) - 1)]
    assert reader.seen_us is not None
    return [
        Cell(reader.name),
        Cell(what_is_read(reader)),
        Cell(units.batch(reader.needs)),
        Cell("-" if reader.lag is None else f"{reader.lag:,}"),
        Cell("-" if reader.lag_rows is None else f"{reader.lag_rows:,}"),
        Cell(f"{units.duration(max(0, now_us - reader.seen_us))} ago"),
    ]
