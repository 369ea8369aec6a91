"""``trailmark trim``."""

from __future__ import annotations

import argparse
import json

from trailmark import units
from trailmark.cli import stream_trim
from trailmark.cli.codes import OK, WRONG
from trailmark.cli.place import open_to_change, open_to_look
from trailmark.cli.work import Work
from trailmark.drawing.readers import held_text
from trailmark.records import Stream
from trailmark.streams.stored import StreamFiles
from trailmark.upkeep.trim import OperatorTrim, trim_operator


def run(options: argparse.Namespace) -> int:
    """Removes what may be removed, or says what that would be."""
    files = open_to_look(options.path) if options.dry_run else open_to_change(options.path)
    if isinstance(files, StreamFiles):
        return stream_trim.run(files, options)
    with Work("trimming") as work:
        done = trim_operator(
            files, options.before_batch, dry_run=options.dry_run, on_log=work.begin
        )
    if options.json:
        print(json.dumps(_describe(done, options), indent=1))
    else:
        _print(done, options)
    return WRONG if done.left_alone else OK


def _print(done: OperatorTrim, options: argparse.Namespace) -> None:
    for log in done.logs:
        if log.stream is Stream.SNAPSHOT and not log.files:
            continue  # few operators have any
        name = f"bucket {log.bucket} {log.stream.name.lower()}"
        kept = ""
        if log.held_by:
            kept = f"; {held_text(log.held_by, log.before)}"
        elif log.before < options.before_batch:
            kept = f"; a recovery needs batch {max(log.before, 0)} and later"
        print(f"{name:<17} {units.some(len(log.files), 'file')}, {units.size(log.bytes)}{kept}")
    for reason in done.left_alone:
        print(f"left alone: {reason}")
    verb = "would be removed" if options.dry_run else "removed"
    print(f"{verb}: {units.some(done.files, 'file')}, {units.size(done.bytes)}")


def _describe(done: OperatorTrim, options: argparse.Namespace) -> dict[str, object]:
    return {
        "path": options.path,
        "is_dry_run": options.dry_run,
        "before_batch": options.before_batch,
        "files": done.files,
        "bytes": done.bytes,
        "logs": [
            {
                "bucket": log.bucket,
                "stream": log.stream.name.lower(),
                "before_batch": log.before,
                "files": log.files,
                "bytes": log.bytes,
                "held_by": log.held_by,
            }
            for log in done.logs
        ],
        "left_alone": done.left_alone,
    }
