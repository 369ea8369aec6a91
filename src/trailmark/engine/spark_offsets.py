"""What a query of Spark reads, by its own log of offsets: for whoever draws who reads whom.

Spark writes ``<checkpoint>/offsets/<batch>`` before a batch runs: a version, a line about the
batch, and a line for each source with the offset that the source gave. Trailmark's own sources give
JSON with the ids of the logs they read (see `trailmark.spark.source`); others pass.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import field
from typing import Any

from trailmark.engine.spark_commits import open_checkpoint, owner_of, recorded
from trailmark.errors import TrailmarkError
from trailmark.log import Storage
from trailmark.values import dataclass

#: Lines of an offsets file before those of the sources.
_HEAD = 2
_MOST_CHARACTERS = 10_000_000


@dataclass(frozen=True, slots=True)
class ReadBy:
    """What a query reads.

    Parameters
    ----------
    logs
        Ids of streams and of operators' logs.
    unions
        Of each union, the id of the log behind every one of its inputs.
    """

    logs: frozenset[str] = frozenset()
    unions: tuple[Mapping[str, str], ...] = field(default_factory=tuple)


def read_by(storage: Storage, query_id: str | None, batch: int) -> ReadBy:
    """What the query of an operator reads in a batch; nothing where that cannot be found out."""
    try:
        found = recorded(storage)
        if query_id is None or found is None or found.get("query_id") != query_id:
            return ReadBy()
        checkpoint = open_checkpoint(str(found.get("checkpoint")))
        if owner_of(checkpoint) != query_id:
            return ReadBy()
        data = bytes(checkpoint.read(f"offsets/{batch}", 0, _MOST_CHARACTERS))
    except (FileNotFoundError, TrailmarkError):
        return ReadBy()  # the picture itself says what is wrong
    lines = data.decode(errors="replace").splitlines()[_HEAD:]
    offsets = [offset for offset in map(_loaded, lines) if offset is not None]
    logs = {offset["log"] for offset in offsets if isinstance(offset.get("log"), str)}
    unions = [offset["inputs"] for offset in offsets if isinstance(offset.get("inputs"), dict)]
    return ReadBy(frozenset(logs), tuple(map(_input_logs, unions)))


def _loaded(line: str) -> dict[str, Any] | None:
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        return None  # another source's, in words of its own
    return found if isinstance(found, dict) else None


def _input_logs(inputs: Mapping[str, Any]) -> dict[str, str]:
    """By name, the first thing that is kept of an input: the id of its log."""
    return {
        name: kept[0]
        for name, kept in inputs.items()
        if isinstance(kept, list) and kept and isinstance(kept[0], str)
    }
