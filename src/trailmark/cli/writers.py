"""``trailmark writers``."""

from __future__ import annotations

import argparse
import json
import sys

from trailmark.cli.codes import OK, WRONG
from trailmark.cli.place import find_rows
from trailmark.cli.question import check_can_ask, says_yes
from trailmark.cli.terminal import show
from trailmark.drawing import Cell, line
from trailmark.drawing.streams import writer_table
from trailmark.errors import SettingError
from trailmark.log import Storage
from trailmark.streams.promises import let_go
from trailmark.streams.status import StreamStatus, StreamStatusReader
from trailmark.watch.place import holds_stream


def run(options: argparse.Namespace) -> int:
    """Lists those who write to a stream, or lets one go."""
    storage = find_rows(options.path)
    if not holds_stream(storage):
        raise SettingError(
            "This path holds the logs of an operator, which only its own query writes.",
            where="PATH",
            fix="Give the path of a written stream.",
        )
    status = StreamStatusReader(storage, look_back=1).read()
    if options.forget is not None:
        return _forget(storage, status, options)
    if options.json:
        described = status.describe()
        shown = {each: described[each] for each in ("writers", "boundaries", "heartbeats")}
        print(json.dumps({"path": options.path, **shown}, indent=1))
    else:
        nobody = line(f"{options.path}: nobody has written under a name")
        show([writer_table(status) or nobody])
    for problem in status.heartbeat_problems:
        print(f"trailmark writers: {problem}", file=sys.stderr)
    return WRONG if status.heartbeat_problems else OK


def _forget(storage: Storage, status: StreamStatus, options: argparse.Namespace) -> int:
    known = [] if status.boundaries is None else sorted(status.boundaries.writers)
    if options.forget not in known:
        raise SettingError(
            f"There is no writer {options.forget!r} that the boundary of the stream waits for.",
            where="--forget",
            fix=f"It waits for {', '.join(known)}." if known else "It waits for nobody.",
        )
    if not options.yes and not _is_wanted(status, options):
        print("Nothing was changed.")
        return OK
    seen = (status.heartbeats or {}).get(options.forget)
    if not let_go(storage, options.forget, status.looked_us, seen):
        raise SettingError(
            f"Writer {options.forget} has just sent a heartbeat.",
            where="--forget",
            fix="Stop it first. Nothing was changed.",
        )
    if options.json:
        print(json.dumps({"path": options.path, "forgotten": options.forget}))
    else:
        print(f"{options.path}: nobody waits for writer {options.forget} any more.")
    return OK


def _is_wanted(status: StreamStatus, options: argparse.Namespace) -> bool:
    check_can_ask(options, "lets a writer go")
    written = writer_table(status)
    assert written is not None, "there is one that can be let go"
    advice = (
        "Readers then go on without it. Should it write again, it counts again, and what it brings "
        "too late is late for good."
    )
    show([written, line(Cell(advice, "warning"))])
    return says_yes()
