"""``trailmark trim`` of a written stream."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator

from trailmark import units
from trailmark.cli.codes import OK, WRONG
from trailmark.cli.work import Work
from trailmark.drawing.readers import held_text
from trailmark.settings import DAY
from trailmark.streams.retention import LEFT_OVER_AFTER_US
from trailmark.streams.stored import StreamFiles
from trailmark.upkeep.streams import TrimByHand, trim_by_hand


def run(files: StreamFiles, options: argparse.Namespace) -> int:
    """Removes what may be removed, or says what that would be."""
    with Work("trimming") as work:
        done = trim_by_hand(
            files, options.before_batch, dry_run=options.dry_run, on_step=work.begin
        )
    if options.json:
        print(json.dumps(_describe(done, options), indent=1))
    else:
        print("\n".join(_lines(done, options)))
    return WRONG if done.left_alone or done.batches.unreadable else OK


def _lines(done: TrimByHand, options: argparse.Namespace) -> Iterator[str]:
    trim, left_over = done.batches, done.left_over
    size = f"{units.some(len(trim.files), 'data file')}, {units.size(trim.bytes)}"
    yield "; ".join([f"batches    {trim.batches:,}, {size}", *_kept(done, options.before_batch)])
    if trim.unreadable:
        yield (
            f"damaged    {units.some(len(trim.unreadable), 'manifest')}: their data files count as "
            "left over"
        )
    if done.left_alone:
        yield f"left alone: files that are left over: {done.left_alone}"
    else:
        yield (
            f"left over  {units.some(len(left_over.files), 'data file')}, "
            f"{units.size(left_over.bytes)} (of no batch, older than {LEFT_OVER_AFTER_US // DAY} "
            "days)"
        )
    verb = "would be removed" if options.dry_run else "removed"
    count = len(trim.files) + len(left_over.files)
    yield f"{verb}: {units.some(count, 'data file')}, {units.size(trim.bytes + left_over.bytes)}"


def _kept(done: TrimByHand, asked: int) -> Iterator[str]:
    """Why less goes than was asked for."""
    if done.held_by:
        yield held_text(done.held_by, done.before)
    elif done.before < asked:
        yield "the newest batch stays"
    if done.oldest < done.before:
        yield f"a pack with batch {done.before} holds batch {done.oldest} and later, too"


def _describe(done: TrimByHand, options: argparse.Namespace) -> dict[str, object]:
    trim, left_over = done.batches, done.left_over
    return {
        "path": options.path,
        "is_dry_run": options.dry_run,
        "before_batch": options.before_batch,
        "may_go_before": done.before,
        "oldest_batch": done.oldest,
        "held_by": done.held_by,
        "batches": trim.batches,
        "unreadable": list(trim.unreadable),
        "files": [file.path for file in trim.files],
        "bytes": trim.bytes,
        "left_over": {"files": left_over.files, "bytes": left_over.bytes},
        "left_alone": done.left_alone,
    }
