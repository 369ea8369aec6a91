"""Tokens of the host's cache, changed: they may cost a recovery, and never a right result.

The files of the tables stay as they are: they are memory that processes of one user share, and are
trusted like memory.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import pyarrow as pa

from tests.fuzz.choices import Choices
from tests.fuzz.files import in_directory, read_files, write_files
from tests.fuzz.mutations import change_json
from tests.support.cases import Case
from tests.support.compare import assert_same_rows
from tests.support.oracle import Row
from tests.support.plain import plain_rows
from tests.support.policies import ONE_OF_EACH
from tests.support.processes import Place
from tests.support.small import SMALL_WINDOWS, small_case
from trailmark.checkpoint.policy import Policy
from trailmark.log import LocalStorage
from trailmark.settings import Durability

_BATCHES = 4
#: One with the changed token, one that recovers from what that left, one with the token of these.
_MORE = 3
_WINDOWS = ("overlapping", "time")


@dataclass(frozen=True)
class CachedWorld:
    """Logs and the cached table after some batches; ``expected`` are the results of the next."""

    name: str
    case: Case
    policy: Policy
    logs: Mapping[str, bytes]
    cache: Mapping[str, bytes]
    expected: Sequence[Sequence[Row]]

    @property
    def token(self) -> str:
        (name,) = (name for name in self.cache if name.endswith("/token"))
        return name


@cache
def cached_world(window: str, policy: str) -> CachedWorld:
    """The same each time but for the clock and what it measures; made when it is asked for."""
    case = small_case(SMALL_WINDOWS[window], _BATCHES + _MORE)
    with in_directory() as path:
        place = _place(path, case, ONE_OF_EACH[policy])
        for batch in range(_BATCHES):
            _run(place, batch)
        logs, cached = read_files(path / "log"), read_files(path / "cache")
        more = range(_BATCHES, _BATCHES + _MORE)
        expected = [plain_rows(_run(place, batch)) for batch in more]
    return CachedWorld(f"{policy}, {window}", case, place.policy, logs, cached, expected)


def _place(path: Path, case: Case, policy: Policy) -> Place:
    return Place(path / "log", case, policy, cache=path / "cache")


def _run(place: Place, batch: int) -> pa.RecordBatch:
    """The results of a batch that runs in a new process."""
    bucket = place.bucket(storage=LocalStorage(place.path, Durability.UNSYNCED))
    try:
        return bucket.run(batch, place.case.batches[batch]).results
    finally:
        bucket.close()


def try_token(choices: Choices) -> None:
    """Changes a token as the choices say, and runs the next batches. Whatever it raises is a
    finding."""
    world = cached_world(choices.one_of(_WINDOWS), choices.one_of(sorted(ONE_OF_EACH)))
    others = (world.policy, world.policy, world.policy, *ONE_OF_EACH.values())
    policy = choices.one_of(others)
    token = world.cache[world.token]
    for _ in range(1 + choices.below(3)):
        token = _changed(token, choices)
    with in_directory() as path:
        write_files(path / "log", world.logs)
        write_files(path / "cache", {**world.cache, world.token: token})
        place = _place(path, world.case, policy)
        for number, expected in enumerate(world.expected):
            with_cache = place if number != 1 else replace(place, cache=None)
            found = _run(with_cache, _BATCHES + number)
            what = f"{world.name}: batch {_BATCHES + number} of {policy}"
            assert_same_rows(found, expected, what)


def _changed(token: bytes, choices: Choices) -> bytes:
    try:
        value = json.loads(token)
    except (ValueError, RecursionError):  # an earlier change has made it no JSON
        return token
    return change_json(value, choices)
