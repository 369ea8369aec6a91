"""``trailmark readers``."""

from __future__ import annotations

import argparse
import json

from trailmark.cli.codes import OK, WRONG
from trailmark.cli.place import find_rows
from trailmark.cli.question import check_can_ask, says_yes
from trailmark.cli.terminal import show
from trailmark.drawing import Cell, Part, line
from trailmark.drawing.readers import reader_table
from trailmark.errors import SettingError
from trailmark.inspection import ReaderStatus, StatusReader
from trailmark.log import Storage
from trailmark.log.readers import forget, reader_names
from trailmark.streams.status import StreamStatusReader
from trailmark.watch.place import holds_stream
from trailmark.watch.words import reader_warnings


def run(options: argparse.Namespace) -> int:
    """Lists the readers, or removes one."""
    storage = find_rows(options.path)
    if options.forget is not None:
        return _forget(storage, options)
    readers, looked_us = _look(storage)
    if options.json:
        described = [reader.describe() for reader in readers]
        print(json.dumps({"path": options.path, "readers": described}, indent=1))
    else:
        show(_drawn(readers, looked_us, options.path))
    return WRONG if any(reader.problem for reader in readers) else OK


def _look(storage: Storage) -> tuple[tuple[ReaderStatus, ...], int]:
    """The readers, and when they were looked at."""
    if holds_stream(storage):
        stream = StreamStatusReader(storage, look_back=1).read()
        return stream.readers, stream.looked_us
    status = StatusReader(storage, look_back=1).read()
    return status.readers, status.looked_us


def _drawn(readers: tuple[ReaderStatus, ...], looked_us: int, path: str) -> list[Part]:
    if not readers:
        return [line(f"{path}: no named readers")]
    warnings = [line(Cell(f"! {text}", "bad")) for text in reader_warnings(readers, path)]
    return [reader_table(readers, looked_us), *warnings]


def _forget(storage: Storage, options: argparse.Namespace) -> int:
    name = options.forget
    known = reader_names(storage)
    if name not in known:
        raise SettingError(
            f"There is no reader {name!r}.",
            where="--forget",
            fix=f"The readers are {', '.join(known)}." if known else "There are none at all.",
        )
    if not options.yes and not _is_wanted(storage, options):
        print("Nothing was changed.")
        return OK
    forget(storage, name)
    if options.json:
        print(json.dumps({"path": options.path, "forgotten": name}))
    else:
        print(f"{options.path}: reader {name} is forgotten; nothing is kept for it any more.")
    return OK


def _is_wanted(storage: Storage, options: argparse.Namespace) -> bool:
    check_can_ask(options, "removes a reader")
    readers, looked_us = _look(storage)
    chosen = [reader for reader in readers if reader.name == options.forget]
    advice = (
        "What it has not read may then be trimmed. Stop it before: a reader that still runs comes "
        "back with the next batch that it commits."
    )
    show([reader_table(chosen, looked_us), line(Cell(advice, "warning"))])
    return says_yes()
