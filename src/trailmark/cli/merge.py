"""``trailmark merge``."""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict

from trailmark import units
from trailmark.cli.codes import OK, WRONG
from trailmark.cli.place import open_to_change
from trailmark.cli.work import Work
from trailmark.streams.stored import StreamFiles
from trailmark.streams.writer import UNMERGED
from trailmark.upkeep.merge import LogMerge, merge_operator
from trailmark.upkeep.streams import merge_manifests


def run(options: argparse.Namespace) -> int:
    """Merges, and says what became of it."""
    files = open_to_change(options.path)
    with Work("merging") as work:
        if isinstance(files, StreamFiles):
            done = [merge_manifests(files, on_log=work.begin)]
        else:
            done = merge_operator(files, on_log=work.begin)
    if isinstance(files, StreamFiles):
        described: dict[str, object] = {"manifests": asdict(done[0])}
        lines = [f"{_text('manifests', done[0])}; the newest {UNMERGED} stay as they are"]
    else:
        described = {"buckets": [asdict(each) for each in done]}
        lines = [_text(f"bucket {each.bucket}", each) for each in done]
    if options.json:
        print(json.dumps({"path": options.path, **described}))
    else:
        print("\n".join(lines))
    return WRONG if any(each.problem for each in done) else OK


def _text(name: str, done: LogMerge) -> str:
    if done.packs:
        text = (
            f"{name}: {units.some(done.batches, 'segment')} merged into "
            f"{units.some(len(done.packs), 'pack')}, {units.size(done.bytes)}"
        )
    else:
        text = f"{name}: nothing to merge"
    return f"{text}; stopped: {done.problem}" if done.problem else text
