"""The small files beside the logs that have a batch for a name: commit marks and watermarks."""

from __future__ import annotations

import re
from collections.abc import Mapping

from trailmark.engine.commits import ROLLED_BACK
from trailmark.log.storage import Entry, Storage
from trailmark.records import NO_BATCH

WATERMARKS = "watermark"

_NAME = re.compile(r"([0-9]{20})(?:\.json)?", re.ASCII)


def batch_files(storage: Storage, directory: str) -> Mapping[int, Entry]:
    """The files of a directory by batch, oldest first; other names are passed over."""
    found = {}
    for entry in storage.list(directory):
        name = _NAME.fullmatch(entry.name)
        if name is not None:
            found[int(name[1])] = entry
    return found


def newest_commit(marks: Mapping[int, Entry]) -> int:
    """The newest batch that is marked as committed, or NO_BATCH."""
    return max(marks, default=NO_BATCH)


def rolled_back(storage: Storage) -> str:
    """Why the query is refused for having gone back; empty if it is not."""
    try:
        return bytes(storage.read(ROLLED_BACK)).decode(errors="replace").strip()
    except FileNotFoundError:
        return ""
