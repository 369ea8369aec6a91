"""What a bucket has noted between two batches: read back as it was, or refused."""

from __future__ import annotations

import copy
import json
import math
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.followed import Followed
from tests.support.orders import random_timed_orders, time_case
from tests.support.policies import ONE_OF_EACH
from trailmark.checkpoint.noted import Bounds
from trailmark.checkpoint.policy import Continuous, Delta, FullSnapshot, Policy, SlowWindows
from trailmark.engine.notes import LONGEST_PAUSE_US, BucketNotes

_ROWS = random_timed_orders(random.Random(2), batches=8, rows=20, items=15)
_CASE = time_case(_ROWS, slide=5_000_000)
_MISSING = object()
_NEVER: tuple[Any, ...] = (
    -1,
    -0.5,
    2**80,
    1e300,
    math.nan,
    math.inf,
    "",
    "7",
    [],
    [1],
    {},
    {"a": 1},
)
_EACH = pytest.mark.parametrize("name", ONE_OF_EACH)


def _run(policy: Policy, root: Path) -> tuple[dict[str, Any], Bounds]:
    """Some batches, and what the token says after them."""
    run = Followed(_CASE, policy, cache_root=root)
    run.run()
    run.query.stop()
    (token,) = root.glob("*/*/token")
    noted = json.loads(token.read_text())["notes"]["bucket"]
    return noted, Bounds(run.next_batch - 1, run.query.clock())


def _read(policy: Policy, stored: object, bounds: Bounds) -> BucketNotes:
    notes = BucketNotes(policy.begin())
    notes.read_json(stored, bounds)
    return notes


def _places(value: dict[str, Any]) -> Iterator[tuple[str, ...]]:
    for key, inner in value.items():
        yield (key,)
        if isinstance(inner, dict):
            yield from ((key, *rest) for rest in _places(inner))


def _changed(noted: dict[str, Any], place: tuple[str, ...], to: object) -> dict[str, Any]:
    changed = copy.deepcopy(noted)
    parent = changed
    for key in place[:-1]:
        parent = parent[key]
    parent[place[-1]] = to
    if to is _MISSING:
        del parent[place[-1]]
    return changed


@_EACH
def test_notes_are_read_back_as_they_were(name: str, tmp_path: Path) -> None:
    noted, bounds = _run(ONE_OF_EACH[name], tmp_path)
    again = _read(ONE_OF_EACH[name], noted, bounds).to_json()
    # As it is stored: of a snapshot that is still being written, there is a pair in memory.
    assert json.loads(json.dumps(again)) == noted


def test_every_policy_that_chooses_by_the_past_has_noted_something(tmp_path: Path) -> None:
    for name, policy in ONE_OF_EACH.items():
        noted, _ = _run(policy, tmp_path / name)
        is_new = noted["chooser"] == json.loads(json.dumps(policy.begin().to_json()))
        assert is_new == (name in ("none", "upstream backup")), name


@_EACH
def test_a_note_that_cannot_be_is_refused_wherever_it_stands(name: str, tmp_path: Path) -> None:
    policy = ONE_OF_EACH[name]
    noted, bounds = _run(policy, tmp_path)
    for place in _places(noted):
        for never in _NEVER:
            changed = _changed(noted, place, never)
            if changed != noted:
                with pytest.raises(ValueError, match=" "):
                    _read(policy, changed, bounds)
        with pytest.raises(ValueError, match="not its fields"):
            _read(policy, _changed(noted, place, _MISSING), bounds)


@_EACH
def test_notes_of_a_later_batch_or_a_later_time_are_refused(name: str, tmp_path: Path) -> None:
    policy = ONE_OF_EACH[name]
    noted, bounds = _run(policy, tmp_path)
    for place in _places(noted):
        if place[-1].endswith("batch") or place[-1] in ("us", "began_us", "counted_us"):
            later = bounds.batch + 1 if place[-1].endswith("batch") else bounds.now_us + 1
            with pytest.raises(ValueError, match="number from"):
                _read(policy, _changed(noted, place, later), bounds)


@pytest.mark.parametrize(
    ("policy", "place", "value"),
    [
        (Continuous(q=1, interval="5 ms", period="1 s"), ("budget", "credit_us"), 5_001.0),
        (Continuous(q=1, interval="5 ms", period="1 s"), ("budget", "credit_us"), -500_001.0),
        (Continuous.within("1 s"), ("budget", "cost_us"), 0.0),
        (Continuous.within("1 s"), ("is_behind",), 1),
        (SlowWindows("1 s", "1 s", shots=3), ("done",), 4),
        (FullSnapshot(3), ("last", "batch"), 3),
        (Delta("3 s"), ("last", "us"), 3.0),
    ],
    ids=str,
)
def test_what_is_impossible_under_a_policy_is_refused(
    policy: Policy, place: tuple[str, ...], value: object
) -> None:
    noted = BucketNotes(policy.begin()).to_json()
    bounds = Bounds(100, 1e6)
    _read(policy, noted, bounds)
    with pytest.raises(ValueError, match=" "):
        _read(policy, _changed(noted, ("chooser", *place), value), bounds)


def test_a_snapshot_on_its_way_and_the_next_rehearsal_are_noted() -> None:
    bounds = Bounds(7, 100.0)
    notes = BucketNotes(has_warned=True, rehearse_after_us=101.0, pending=(7, 2**32 - 1))
    stored = json.loads(json.dumps(notes.to_json()))
    again = BucketNotes()
    again.read_json(stored, bounds)
    assert again.to_json() == notes.to_json()
    for wrong in ([8, 1], [7], [7, 2**32], [7, 1, 1], [True, 1], "77"):
        with pytest.raises(ValueError, match=" "):
            again.read_json({**stored, "pending": wrong}, bounds)
    with pytest.raises(ValueError, match="no number"):
        again.read_json({**stored, "rehearse_after_us": 102.0 + LONGEST_PAUSE_US}, bounds)
