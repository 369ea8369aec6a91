"""The files that are fuzzed: all those of small logs of operators, and of a written stream."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from tests.fuzz.files import read_files
from tests.support.engine import CrashCase
from tests.support.processes import Place
from tests.support.small import SMALL_WINDOWS, small_case_of
from tests.support.stored import stored_at
from trailmark.checkpoint.policy import Continuous, Policy
from trailmark.engine.commits import mark_committed
from trailmark.log.readers import register
from trailmark.records import Stream

_BATCHES = 5
_MERGED_UP_TO = 2
#: Aggregates, joins, a barrier, and the two forms of users' operators.
_OPERATORS = (*SMALL_WINDOWS, "barrier", "join", "last tuples", "keyed", "sessions", "whole")


@dataclass(frozen=True)
class World:
    """Whole logs, file by file; ``case`` is the operator's, if it is one."""

    name: str
    files: Mapping[str, bytes]
    case: CrashCase | None = None
    policy: Policy | None = None

    def place(self, path: Path) -> Place:
        assert self.case is not None
        assert self.policy is not None
        return Place(path, self.case, self.policy)


@cache
def worlds() -> tuple[World, ...]:
    """All of them, with the same bytes each time but for the clock and what it measures."""
    return tuple(_made(name) for name in (*_OPERATORS, "stream"))


def _made(name: str) -> World:
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "log"
        case, policy = _operator(path, name) if name in _OPERATORS else _stream(path)
        return World(name, read_files(path), case, policy)


def _operator(path: Path, name: str) -> tuple[CrashCase, Policy]:
    policy = Continuous(q=20)
    case = small_case_of(name, _BATCHES + 1)
    place = Place(path, case, policy)
    logs = place.logs()
    bucket = place.bucket()
    for batch in range(_BATCHES):
        bucket.run(batch, case.batches[batch])
        mark_committed(logs.storage, batch, "run")
    bucket.close()
    for log in (logs.input(0), logs.output(0)):
        log.time_index()
        log.merge(_MERGED_UP_TO)
    register(logs.storage, "billing", Stream.OUTPUT, 1)
    return case, policy


def _stream(path: Path) -> tuple[None, None]:
    stream = stored_at(path, batches=4)
    log = stream.files.log
    log.merge(1)
    log.time_index()
    register(stream.storage, "billing", Stream.BATCHES, 1)
    return None, None
