"""A worker that is killed at any moment, under every policy: real processes, real files.

``TRAILMARK_SEED`` chooses the moments.
"""

from __future__ import annotations

import random
import time
from dataclasses import replace
from pathlib import Path

import pytest

from tests.support.cases import Case
from tests.support.killed import next_batch, rows_of, run_on, run_to_snapshot
from tests.support.orders import count_case, time_case
from tests.support.policies import ONE_OF_EACH
from tests.support.processes import STEPS, Place, Run, Worker, serve
from tests.support.seeds import reported, seeds
from tests.support.verdict import assert_logs_are_right, assert_state_is_right
from trailmark.checkpoint.policy import FullSnapshot

_SEED = seeds(1)[0]
_KILLS = 4

_CASES: dict[str, Case] = {
    "count": count_case([[]], size=7, slide=4),
    "time": time_case([[]], slide=5_000_000),
}


class _Nobody:
    """Takes what a task has to say when it is carried out here."""

    def recv(self) -> None:
        return None

    def send(self, answer: object) -> None:
        pass


def _finish(place: Place, more: int) -> int:
    """Runs so many batches more; returns the last one."""
    last = next_batch(place) + more
    run_on(_Nobody(), place, _SEED, last)
    return last


def _assert_right(place: Place, last: int) -> None:
    """The logs hold the oracle's results of every batch, and give its state."""
    batches = [rows_of(place.case, batch) for batch in range(last + 1)]
    for number, oracle in enumerate(assert_logs_are_right(place, batches)):
        assert_state_is_right(place, number, oracle, last)


def _kill_amid_batches(place: Place, rng: random.Random) -> tuple[int, bool]:
    """Kills a worker some batches and some milliseconds after it was started; returns its first
    batch, and whether the last one that it had begun was not yet through."""
    with Worker(run_on, place, rng.randrange(1_000), None) as worker:
        begun = [worker.receive() for _ in range(rng.randint(1, 8))]
        time.sleep(rng.choice((0.0, rng.uniform(0.0, 0.004), rng.uniform(0.0, 0.03))))
        worker.kill()
    newest = min(place.logs().output(number).newest() for number in range(place.buckets))
    return begun[0], newest < begun[-1]


@pytest.mark.parametrize("kind", _CASES)
@pytest.mark.parametrize("policy", ONE_OF_EACH)
def test_a_worker_killed_at_any_moment_loses_and_repeats_nothing(
    policy: str, kind: str, tmp_path: Path
) -> None:
    rng = random.Random(f"{_SEED} {policy} {kind}")
    case = _CASES[kind]
    place = Place(tmp_path / "log", case, ONE_OF_EACH[policy], 2 if kind == "time" else 1)
    # Without a cache every restart is a recovery; with one, those are that find no whole table.
    places = [place, replace(place, cache=tmp_path / "cache")]
    place.logs()
    with reported(_SEED, case):
        kills = [_kill_amid_batches(rng.choice(places), rng) for _ in range(_KILLS)]
        last = _finish(place, 3)
        stood = [batch for batch, _ in kills]
        assert stood == sorted(stood), "what was published stays"
        assert stood[0] < stood[-1] < last, "it gets on between two kills"
        assert any(is_amid for _, is_amid in kills), "and some in the middle of one"
        _assert_right(place, last)


@pytest.mark.parametrize("policy", ONE_OF_EACH)
def test_a_worker_killed_at_every_step_of_a_batch_loses_and_repeats_nothing(
    policy: str, tmp_path: Path
) -> None:
    case = _CASES["time"]
    place = Place(tmp_path / "log", case, ONE_OF_EACH[policy], cache=tmp_path / "cache")
    for step in STEPS:
        last = _finish(place, 3)
        with Worker(serve, place) as worker:
            worker.send(Run(last + 1, rows_of(case, last + 1), stop_at=step))
            worker.wait_until_stopped()
            worker.kill()
        is_published = place.logs().output(0).contains(last + 1)
        assert is_published == (step == "commit"), f"killed amid the batch, at step {step}"
    _assert_right(place, _finish(place, 5))


@pytest.mark.parametrize("is_after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("kind", _CASES)
def test_a_worker_killed_while_it_writes_a_snapshot_loses_and_repeats_nothing(
    kind: str, is_after: bool, tmp_path: Path
) -> None:
    case = _CASES[kind]
    place = Place(tmp_path / "log", case, FullSnapshot(4, asynchronous=True))
    with Worker(run_to_snapshot, place, 12, is_after) as worker:
        worker.wait_until_stopped()
        worker.kill()
    newest = place.logs().output(0).newest()
    assert newest == 12, "it waits for nobody but the snapshot"
    assert place.logs().snapshots(0).contains(12) == is_after
    bucket = place.bucket()
    recovery = bucket.run(13, rows_of(case, 13)).recovery
    bucket.close()
    assert recovery is not None
    assert recovery.plan.base == 8, "no footer names the snapshot of batch 12"
    _assert_right(place, _finish(place, 5))
