"""How long tuples waited, from what writers and Spark have written down."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from bench.stalls.checkpointed import batches_of
from bench.stalls.delays import CELL_US, Batch, Cells, Commit, corrected_us, waited
from bench.stalls.due import Due
from trailmark.streams.union.ahead import Ahead, Edge, Phase
from trailmark.streams.union.decision import Decision, Reached

_SECOND = 1_000_000
_STREAMS = ("a", "b")


def _random_run(rng: random.Random) -> tuple[list[Commit], list[Batch]]:
    """Two streams, one of which is silent for a while, and batches that answer without it."""
    commits: list[Commit] = []
    silent_us, returns_us = 2 * _SECOND, rng.randrange(3, 6) * _SECOND
    for name in _STREAMS:
        at_us, first_us, number = 0, 0, 0
        while at_us < 9 * _SECOND:
            at_us += rng.randrange(50_000, 300_000)
            is_silent = name == "b" and silent_us <= at_us < returns_us
            if is_silent:
                continue
            has_returned = name == "b" and first_us < returns_us <= at_us and at_us > silent_us
            rows = (at_us - first_us) // 1_000
            done_us = at_us + rng.randrange(1_000, 90_000)
            returned_us = returns_us if has_returned and first_us < silent_us + 300_000 else None
            commits.append(Commit(name, number, first_us, at_us, rows, done_us, returned_us))
            first_us, number = at_us, number + 1
    batches, now_us, until_us, released_us = [], 0, 0, 0
    end_us = min(max(c.end_us for c in commits if c.stream == name) for name in _STREAMS)
    while released_us < end_us:
        now_us += rng.randrange(100_000, 900_000)
        there = [c for c in commits if c.committed_us <= now_us]
        seen = {name: sum(c.stream == name for c in there) for name in _STREAMS}
        ends = [max((c.end_us for c in there if c.stream == n), default=0) for n in _STREAMS]
        released_us = max(released_us, min(ends))
        until_us = max(until_us, released_us, rng.choice((0, max(ends))))
        phase = "STABLE" if until_us == released_us else "UP_FAILURE"
        batches.append(Batch(until_us, released_us, seen, phase, now_us + rng.randrange(200_000)))
    return [c for c in commits if c.end_us <= end_us], batches


def _answer(commit: Commit, at_us: int, batches: Sequence[Batch]) -> int:
    """When the tuple with a time was answered: batch after batch, as a reader would see it."""
    until_us = released_us = None
    for batch in batches:
        assert batch.until_us is not None
        assert batch.released_us is not None
        is_there = commit.batch < batch.seen[commit.stream]
        is_tentative = (until_us is None or at_us >= until_us) and at_us < batch.until_us
        is_stable = (released_us is None or at_us >= released_us) and at_us < batch.released_us
        if is_there and (is_tentative or is_stable):
            return batch.answered_us
        until_us, released_us = batch.until_us, batch.released_us
    raise AssertionError("never answered")


@pytest.mark.parametrize("seed", range(30))
def test_delays_equal_those_found_one_tuple_at_a_time(seed: int) -> None:
    """Where cells and batches have the same borders, a cell is as late as all of its tuples."""
    commits, batches = _random_run(random.Random(seed))
    expected = []
    for commit in commits:
        cut = commit.returned_us if commit.returned_us is not None else -1
        for at_us in range(commit.first_us, commit.end_us, 1_000):
            end_us = commit.first_us + ((at_us - commit.first_us) // CELL_US + 1) * CELL_US
            last_us = min(end_us, commit.end_us) - 1
            if at_us < cut <= last_us:
                last_us = cut - 1
            delay_us = max(0, _answer(commit, last_us, batches) - commit.committed_us)
            expected.append((commit.committed_us, delay_us, at_us < cut))
    found = waited(commits, batches)
    assert found.rows.sum() == pytest.approx(sum(c.rows for c in commits))
    tuples = {(c, d, m) for c, d, m in expected}
    cells = zip(found.committed_us, found.delays_us, found.were_missed, strict=True)
    assert {(int(c), int(d), bool(m)) for c, d, m in cells} == tuples
    new = found.between(0, 20 * _SECOND)
    assert new.longest_s == max(d for _, d, was_missed in expected if not was_missed) / _SECOND
    bound_s = sorted(d for _, d, _ in expected)[len(expected) // 2] / _SECOND
    within = [d <= bound_s * _SECOND for _, d, was_missed in expected if not was_missed]
    assert new.share_within(bound_s) == pytest.approx(sum(within) / len(within), abs=0.01)


def test_a_tuple_that_is_seen_after_its_time_was_given_out_waits_until_it_is_released() -> None:
    commit = Commit("b", 0, 0, CELL_US, 10, 500)
    batches = [
        Batch(CELL_US, None, {}, "UP_FAILURE", 1_000),
        Batch(2 * CELL_US, None, {"b": 1}, "UP_FAILURE", 2_000),
        Batch(2 * CELL_US, CELL_US, {"b": 1}, "STABLE", 3_000),
    ]
    assert waited([commit], batches).delays_us.tolist() == [2_500]
    with pytest.raises(ValueError, match="never answered"):
        waited([commit], batches[:2])


def test_quantiles_count_tuples_and_not_cells() -> None:
    cells = Cells(
        np.array([998.0, 1.0, 1.0]),
        np.array([0, _SECOND // 2, 3 * _SECOND]),
        np.array([1, 7, 3]) * _SECOND,
        np.zeros(3, dtype=bool),
    )
    assert (cells.quantile_s(0.5), cells.quantile_s(0.998), cells.quantile_s(0.999)) == (1, 1, 3)
    assert cells.quantile_s(1.0) == cells.longest_s == 7
    assert cells.share_within(3) == 0.999
    assert cells.by_second(_SECOND) == [(-1, 7.0), (2, 3.0)]


def test_a_failure_is_corrected_when_all_is_stable_that_was_missed() -> None:
    commits = [Commit("a", 0, 0, 50, 5, 60), Commit("b", 3, 0, 50, 5, 60, returned_us=40)]
    batches = [
        Batch(30, 30, {}, "STABLE", 100),
        Batch(60, 45, {}, "STABILIZATION", 200),
        Batch(60, 60, {}, "STABLE", 300),
    ]
    assert corrected_us(commits, batches) == 300
    with pytest.raises(ValueError, match="never corrected"):
        corrected_us(commits, batches[:2])


def test_batches_are_read_from_a_checkpoint_of_spark(tmp_path: Path) -> None:
    reached = Reached("log", 0, 2, 5, 70, 60)
    ahead = Ahead(80, 1, Phase.UP_FAILURE, ("b",), 7, (Edge(80, 1),))
    decisions = [Decision(0, 50, {"a": reached}), Decision(1, 50, {"a": reached}, 0, ahead)]
    for name in ("offsets", "commits"):
        (tmp_path / name).mkdir()
    for number, decision in enumerate([*decisions, decisions[0]]):
        lines = ["v1", '{"batchWatermarkMs":0}', "-", '{"after":3}', json.dumps(decision.to_json())]
        (tmp_path / "offsets" / str(number)).write_text("\n".join(lines))
    for number in range(2):  # the third was not committed
        (tmp_path / "commits" / str(number)).write_text("v1\n{}")
    found = batches_of(tmp_path)
    assert [(b.until_us, b.released_us, b.phase, b.seen) for b in found] == [
        (50, 50, "STABLE", {"a": 5}),
        (80, 50, "UP_FAILURE", {"a": 5}),
    ]
    written_us = [(tmp_path / "commits" / str(n)).stat().st_mtime_ns // 1000 for n in range(2)]
    assert [b.answered_us for b in found] == written_us


def test_rows_are_due_alike_however_often_one_asks() -> None:
    rng = random.Random(5)
    for rate in (1, 777, 16_666):
        often, asked_us = Due(1_000, rate), 1_000
        parts = []
        for _ in range(50):
            asked_us += rng.randrange(1, 120_000)
            first_us, times = often.until(asked_us)
            assert ((times >= first_us) & (times < asked_us)).all()
            parts.append(times)
        _, at_once = Due(1_000, rate).until(asked_us)
        assert np.concatenate(parts).tolist() == at_once.tolist()
        assert len(at_once) == -(-(asked_us - 1_000) * rate // _SECOND)
