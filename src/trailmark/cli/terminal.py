"""What a terminal can do that a file cannot: colours, tables, drawings that take the place of the
last one, and bars that say how far long work has come.

All of that is done by rich, where it is installed (``pip install 'trailmark[terminal]'``). Without
it, and in files and pipes, there is plain text.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TextIO

from trailmark import units
from trailmark.cli.guarded import Guarded
from trailmark.drawing import Cell, Line, Part, Style, Table, line, lines_of
from trailmark.units import printable

if TYPE_CHECKING:
    import rich.live
    import rich.progress
    from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
    from rich.text import Text

_STYLES: dict[Style, str] = {
    "plain": "",
    "bold": "bold",
    "dim": "dim",
    "good": "green",
    "warning": "yellow",
    "bad": "red",
}
#: No table is wider.
_WIDEST = 10_000


def show(parts: Sequence[Part]) -> None:
    """Prints a drawing."""
    console = _console(sys.stdout)
    if console is None:
        print("\n".join(lines_of(parts)))
    else:
        console.print(_rendered(parts), soft_wrap=True)


def say(*pieces: str | Cell) -> None:
    """Prints a line."""
    show([line(*pieces)])


class Screen:
    """A drawing that takes the place of the last one; in a file, one after another."""

    def __init__(self) -> None:
        self._live = _live(_console(sys.stdout))
        self._is_first = True

    def draw(self, parts: Sequence[Part]) -> None:
        """Shows the parts in place of those before."""
        if self._live is not None:
            self._live.update(_rendered(parts), refresh=True)
            return
        print(*([] if self._is_first else [""]), *lines_of(parts), sep="\n", flush=True)
        self._is_first = False

    def __enter__(self) -> Screen:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self._live.stop()


class Bar:
    """How far long work has come, on a terminal; nothing anywhere else.

    Parameters
    ----------
    verb
        What is being done.
    """

    def __init__(self, verb: str) -> None:
        self._verb = verb
        self._progress = _progress(_console(sys.stderr))
        self._task: rich.progress.TaskID | None = None
        self._bytes = 0

    def begin(self, name: str, number: int, count: int) -> None:
        """The work on one of ``count`` parts begins."""
        if self._progress is None:
            return
        said = printable(f"{self._verb} {name}")
        if self._task is None:
            self._task = self._progress.add_task(said, total=count, read="")
        self._progress.update(self._task, description=said, total=count, completed=number - 1)

    def read(self, count: int) -> None:
        """So many bytes have been read."""
        self._bytes += count
        if self._progress is not None and self._task is not None:
            self._progress.update(self._task, read=f"{units.size(self._bytes)} read")

    def __enter__(self) -> Bar:
        if self._progress is not None:
            self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._progress is not None:
            self._progress.stop()


def _console(stream: TextIO) -> Console | None:
    """A terminal as rich sees it; None for a file, and where rich is not installed."""
    if not stream.isatty():
        return None
    try:
        from rich.console import Console
    except ImportError:
        return None
    bare = stream.bare if isinstance(stream, Guarded) else stream
    return Console(
        file=bare,
        color_system=None if os.environ.get("NO_COLOR") else "auto",
        force_jupyter=False,
        highlight=False,
        markup=False,
    )


def _live(console: Console | None) -> rich.live.Live | None:
    if console is None:
        return None
    from rich.live import Live

    return Live(console=console, auto_refresh=False, redirect_stdout=False, redirect_stderr=False)


def _progress(console: Console | None) -> rich.progress.Progress | None:
    if console is None:
        return None
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    text = TextColumn("{task.description}", markup=False)
    read = TextColumn("{task.fields[read]}", markup=False)
    columns = (text, BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), read)
    return Progress(
        *columns, console=console, transient=True, redirect_stdout=False, redirect_stderr=False
    )


def _rendered(parts: Sequence[Part]) -> RenderableType:
    from rich.console import Group

    return Group(*(_text(part) if isinstance(part, Line) else _Table(part) for part in parts))


def _text(part: Line) -> Text:
    from rich.text import Text

    return Text.assemble(*((printable(cell.text), _STYLES[cell.style]) for cell in part.cells))


class _Table:
    """A table that is as wide as it has to be: where it does not fit, no figure is cut short."""

    def __init__(self, drawn: Table) -> None:
        from rich import box
        from rich.table import Table as RichTable

        self._table = RichTable(
            box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0)
        )
        for title in drawn.titles:
            side: Any = "left" if title in drawn.left else "right"
            self._table.add_column(_text(line(title)), justify=side, no_wrap=True)
        for row in drawn.rows:
            self._table.add_row(*(_text(Line((cell,))) for cell in row))

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        from rich.measure import Measurement

        room = options.update(max_width=_WIDEST)
        width = Measurement.get(console, room, self._table).maximum
        yield from console.render(self._table, options.update(width=width))
