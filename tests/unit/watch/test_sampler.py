"""What is seen is what the engine did, looks do not pile up, and nothing is disturbed."""

from __future__ import annotations

import shutil
import threading
import time
from itertools import pairwise
from pathlib import Path

import pytest

from tests.support.pipeline import Pipeline
from tests.support.stored import stored_at
from tests.support.streams import SetClock
from tests.support.written import Written, count_orders, write_logs
from trailmark.inspection import OperatorStatus
from trailmark.watch import Edge, Places, Sampler, Seen, warnings_of
from trailmark.watch.history import KEPT_US
from trailmark.watch.pictures import log_of


@pytest.fixture
def clock() -> SetClock:
    """When the logs of these tests are written, and later."""
    return SetClock(int(time.time() * 1e6))


def _only(sampler: Sampler) -> Seen:
    (seen,) = sampler.look().seen
    return seen


def _status(seen: Seen) -> OperatorStatus:
    assert isinstance(seen.picture, OperatorStatus)
    return seen.picture


def test_a_line_has_the_longest_prediction_of_every_look(tmp_path: Path, clock: SetClock) -> None:
    pipeline = Pipeline(tmp_path, rows=200, buckets=2)
    sampler = Sampler(lambda: [str(pipeline.place.path)], clock=clock)
    reported, totals = [], []
    for _ in range(4):
        reports = pipeline.step()
        totals.append(sum(report.account.inputs_total for report in reports))
        reported.append([report.account.predicted_us for report in reports])
        clock.now_us += 1_000_000
        seen = _only(sampler)
    points = seen.history.after(0)
    assert [point.predicted_us for point in points] == [max(each) for each in reported]
    assert {point.objective_us for point in points} == {2_000_000}
    rates = [(total - totals[0]) / seconds for seconds, total in enumerate(totals) if seconds]
    assert [point.rate for point in points] == [None, *rates]
    for bucket in range(2):
        line = seen.history.of_bucket(bucket, points[0].at_us)
        assert (
            line == [(p.at_us, each[bucket]) for p, each in zip(points, reported, strict=True)][1:]
        )
    assert [point.at_us for point in seen.history.after(points[2].at_us)] == [points[3].at_us]
    pipeline.stop()


def test_an_hour_is_kept(tmp_path: Path, clock: SetClock) -> None:
    logs = write_logs(tmp_path / "a", count_orders(2))
    sampler = Sampler(lambda: [str(logs.path)], clock=clock)
    for _ in range(100):
        clock.now_us += KEPT_US // 60
        seen = _only(sampler)
    assert len(seen.history.after(0)) == len(seen.history.of_bucket(0, 0)) == 60
    assert seen.history.after(0)[-1].at_us == clock.now_us


def test_every_recovery_is_seen_once(tmp_path: Path, clock: SetClock) -> None:
    pipeline = Pipeline(tmp_path, rows=200, buckets=2)
    sampler = Sampler(lambda: [str(pipeline.place.path)], clock=clock)
    expected = []
    for batch in range(6):
        reports = pipeline.step(crash=batch in (2, 4))
        for number, report in enumerate(reports):
            if report.recovery is not None:
                expected.append((batch, number))
        seen = [_only(sampler), _only(sampler)][-1]
    assert len(expected) == 4
    found = [(each.batch, each.bucket) for each in seen.history.recoveries]
    assert sorted(found) == expected
    assert seen.history.recoveries_since == 4
    pipeline.stop()


def test_who_reads_whom_is_found_in_the_files(tmp_path: Path, clock: SetClock) -> None:
    pipeline = Pipeline(tmp_path, rows=100, buckets=1)
    sampler = Sampler(Places([str(tmp_path)]), clock=clock)
    pipeline.step()
    pipeline.stop()
    names = {(Path(edge.source).name, Path(edge.target).name) for edge in sampler.look().edges}
    assert names == {
        ("eu", "union"),
        ("us", "union"),
        ("union", "average"),
        ("average", "averages"),
    }
    # An operator that reads a stream itself, and the results of another operator.
    logs = {
        Path(seen.path).name: log_of(seen.picture) for seen in sampler.look().seen if seen.picture
    }
    for log in ("eu", "averages"):
        (tmp_path / "checkpoint" / "offsets" / "0").write_text(
            f'v1\n{{}}\n{{"batch":3,"log":"{logs[log]}"}}\n{{"topic":1}}\n-\n[]'
        )
        fresh = Sampler(Places([str(tmp_path)]), clock=clock)
        edge = Edge(str(tmp_path / "streams" / log), str(pipeline.place.path))
        assert edge in fresh.look().edges


def test_a_checkpoint_of_another_query_says_nothing(tmp_path: Path, clock: SetClock) -> None:
    pipeline = Pipeline(tmp_path, rows=100, buckets=1)
    pipeline.step()
    pipeline.stop()
    (tmp_path / "checkpoint" / "metadata").write_text('{"id":"somebody else"}')
    edges = Sampler(Places([str(tmp_path)]), clock=clock).look().edges
    assert str(pipeline.place.path) not in {edge.target for edge in edges}


def test_a_path_that_fails_keeps_its_last_picture_and_comes_back(
    tmp_path: Path, clock: SetClock
) -> None:
    logs = write_logs(tmp_path / "a", count_orders(3))
    stream = stored_at(tmp_path / "b", 3)
    sampler = Sampler(lambda: [str(logs.path), str(stream.path)], clock=clock)
    before, other = sampler.look().seen
    assert not before.problem
    (logs.path / "meta.json").rename(tmp_path / "meta.json")
    gone, still = sampler.look().seen
    assert "is no Trailmark log" in gone.problem
    assert gone.picture == before.picture
    assert not still.problem
    assert still.picture is not other.picture
    (tmp_path / "meta.json").rename(logs.path / "meta.json")
    back, _ = sampler.look().seen
    assert not back.problem
    shutil.rmtree(stream.path)
    assert "does not exist" in sampler.look().seen[1].problem


def test_a_log_that_is_begun_anew_in_the_same_place_is_another_one(
    tmp_path: Path, clock: SetClock
) -> None:
    logs = write_logs(tmp_path / "a", count_orders(5))
    sampler = Sampler(lambda: [str(logs.path)], clock=clock)
    assert _status(_only(sampler)).last_batch == 4
    shutil.rmtree(logs.path)
    assert "does not exist" in _only(sampler).problem
    write_logs(tmp_path / "a", count_orders(2))
    clock.now_us += 1
    seen = _only(sampler)
    assert (_status(seen).last_batch, seen.problem) == (1, "")
    assert len(seen.history.after(0)) == 1


def test_looking_changes_nothing(tmp_path: Path) -> None:
    logs = write_logs(tmp_path / "a", count_orders(), stop_before=7)
    before = logs.files()
    sampler = Sampler(Places([str(tmp_path)]), 0.01)
    sampler.start()
    _wait_for(sampler, 5)
    sampler.stop()
    assert logs.files() == before


def test_a_slow_look_delays_the_next_and_no_two_are_made_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    logs = write_logs(tmp_path / "a", count_orders(2))
    spans: list[tuple[float, float]] = []

    def slow() -> list[str]:
        began = time.monotonic()
        time.sleep(0.05)
        spans.append((began, time.monotonic()))
        return [str(logs.path)]

    others = threading.active_count()
    sampler = Sampler(slow, 0.001)
    sampler.start()
    _wait_for(sampler, 4)
    sampler.stop()
    assert threading.active_count() <= others
    for (_, ended), (began, _) in pairwise(spans):
        assert began - ended >= 0.05  # at most half of the time goes into looking


def _wait_for(sampler: Sampler, rounds: int) -> None:
    until = time.monotonic() + 60
    while sampler.snapshot.number < rounds:
        assert time.monotonic() < until, "no looks are made"
        time.sleep(0.005)


def test_what_is_wrong_is_said_as_on_the_terminal(tmp_path: Path, clock: SetClock) -> None:
    logs: Written = write_logs(tmp_path / "a", count_orders(), stop_before=7)
    logs.flip(f"out/00001/{logs.newest:020d}.seg", -40)
    seen = _only(Sampler(lambda: [str(logs.path)], clock=clock))
    assert not seen.problem
    (warning,) = warnings_of(_status(seen), seen.path)
    assert warning.startswith("bucket 1: A file of the log does not match")
