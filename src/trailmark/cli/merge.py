"""``trailmark merge``."""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict

from trailmark.cli import units
from trailmark.cli.codes import OK, WRONG
from trailmark.cli.place import open_to_change
from trailmark.upkeep.merge import LogMerge, merge_operator


def run(options: argparse.Namespace) -> int:
    """Merges, and says what became of it."""
    done = merge_operator(open_to_change(options.path))
    if options.json:
        print(json.dumps({"path": options.path, "buckets": [asdict(each) for each in done]}))
    else:
        print("\n".join(_line(each) for each in done))
    return WRONG if any(each.problem for each in done) else OK


def _line(done: LogMerge) -> str:
    if done.packs:
        text = (
            f"bucket {done.bucket}: {units.some(done.batches, 'segment')} merged into "
            f"{units.some(len(done.packs), 'pack')}, {units.size(done.bytes)}"
        )
    else:
        text = f"bucket {done.bucket}: nothing to merge"
    return f"{text}; stopped: {done.problem}" if done.problem else text
