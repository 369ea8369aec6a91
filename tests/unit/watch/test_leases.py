"""Leases among what is looked at again and again: who is active is seen without waiting for it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.stored import stored_at
from trailmark.dashboard import page_routes
from trailmark.leases import Holder, Waiting, open_lease
from trailmark.leases.status import LeaseWatcher
from trailmark.leases.terms import Term, publish_term
from trailmark.leases.waiting import say_waiting
from trailmark.log import Storage
from trailmark.metrics.families import samples_of
from trailmark.settings import SECOND
from trailmark.watch import Places, Sampler

_A, _B = Holder("a" * 32, "a", "one", 7), Holder("b" * 32, "b", "two", 8)


@pytest.fixture
def storage(tmp_path: Path) -> Storage:
    return open_lease(tmp_path / "all" / "orders.lease")[1]


def _say(storage: Storage, number: int, holder: Holder = _A, *, is_released: bool = False) -> None:
    publish_term(storage, Term(number, holder, 3, SECOND, is_released=is_released))


def test_whoever_has_said_nothing_for_a_term_is_not_active(storage: Storage) -> None:
    now_us = 0.0
    watcher = LeaseWatcher(storage, now_us=lambda: now_us)
    assert watcher.look().term is None
    _say(storage, 0)
    assert watcher.look().active == _A
    now_us += 0.9 * SECOND
    found = watcher.look()
    assert (found.active, found.renewed, found.watched_us) == (_A, False, 900_000)
    now_us += 0.1 * SECOND
    assert watcher.look().has_run_out
    now_us += 60 * SECOND
    _say(storage, 1)
    found = watcher.look()
    assert (found.active, found.renewed, found.watched_us) == (_A, True, 0)


def test_that_a_term_is_old_is_not_known_at_the_first_look(storage: Storage) -> None:
    _say(storage, 0)
    now_us = 1e9
    watcher = LeaseWatcher(storage, now_us=lambda: now_us)
    assert watcher.look().active == _A
    now_us += SECOND
    assert watcher.look().active is None


def test_one_that_waits_is_there_as_long_as_it_says_so(storage: Storage) -> None:
    now_us = 0.0
    watcher = LeaseWatcher(storage, now_us=lambda: now_us)
    seen = []
    for second in range(8):
        now_us = second * SECOND
        if second < 3:
            say_waiting(storage, Waiting(_B, second, "warm"))
        seen.append([each.is_there for each in watcher.look().waiting])
    assert seen == [[True]] * 6 + [[False]] * 2, "three seconds after the last time"


def _place(sampler: Sampler) -> Any:
    sampler.look()
    told = json.loads(page_routes(sampler)["/api/now"].give({}).body)
    assert all(
        place["id"] not in layer
        for place in told["places"]
        if place["kind"] == "lease"
        for layer in told["layers"]
    )
    (place,) = (each for each in told["places"] if each["kind"] == "lease")
    return place


def test_the_page_says_who_is_active_and_who_waits(tmp_path: Path, storage: Storage) -> None:
    stored_at(tmp_path / "all" / "orders")
    sampler = Sampler(Places([str(tmp_path / "all")]))
    assert _place(sampler)["word"] == "nobody has had it yet"
    _say(storage, 0)
    say_waiting(storage, Waiting(_B, 1, "warm: rehearsal 3 took 800 ms"))
    place = _place(sampler)
    assert (place["state"], place["word"]) == ("good", "a is active")
    assert place["title"] == "lease, a term is 1 s"
    assert dict(place["facts"])["Had by"] == "a (one:7)"
    (table,) = place["tables"]
    assert table["rows"] == [["b", "two", "8", "warm: rehearsal 3 took 800 ms"]]
    _say(storage, 1, is_released=True)
    assert (_place(sampler)["state"], _place(sampler)["word"]) == ("none", "free")
    storage.publish(f"terms/{2:020d}.json", [b"no json"])
    place = _place(sampler)
    assert place["state"] == "bad"
    assert "cannot be read" in place["trouble"][0]


def test_a_lease_that_nobody_takes_is_told_and_measured(tmp_path: Path, storage: Storage) -> None:
    now_us = 0.0
    watcher = LeaseWatcher(storage, now_us=lambda: now_us)
    sampler = Sampler(Places([str(tmp_path / "all" / "orders.lease")]))
    sampler._lookers[str(tmp_path / "all" / "orders.lease")] = watcher.look  # type: ignore[assignment]
    _say(storage, 0)
    assert _measured(sampler) == (0.0, 0.0)
    now_us += SECOND
    say_waiting(storage, Waiting(_B, 1, "warm"))
    assert _measured(sampler) == (1.0, 1.0)
    assert _place(sampler)["trouble"] == [
        "nobody is active: a (one:7) has been silent for 1 s, a term is 1 s"
    ]
    _say(storage, 1, _B)
    assert _measured(sampler)[0] == 0.0


def _measured(sampler: Sampler) -> tuple[float | None, float | None]:
    (seen,) = sampler.look().seen
    found = {metric.name: value for metric, (_, value) in samples_of(seen)}
    return found["trailmark_lease_run_out"], found["trailmark_lease_waiting"]


def test_a_path_that_became_a_lease_is_shown_as_one(tmp_path: Path) -> None:
    sampler = Sampler(lambda: [str(tmp_path / "later")])
    (seen,) = sampler.look().seen
    assert seen.picture is None
    open_lease(tmp_path / "later")
    assert _place(sampler)["kind"] == "lease"
