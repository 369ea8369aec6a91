"""Times of parts: each moment counts once, and the parts add up to the whole."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from itertools import count, pairwise
from pathlib import Path

import pytest

from bench.profiling import parts
from bench.profiling.divide import Trace, divide
from bench.profiling.event_log import Task, Tasks, read_tasks
from bench.profiling.spans import Span, Tracer, explain_waits, totals
from bench.profiling.worker import TRACED


def _ticking() -> Iterator[float]:
    return map(float, count())


def test_a_part_inside_another_interrupts_it() -> None:
    ticks = _ticking()
    tracer = Tracer(lambda: next(ticks))
    with tracer.part("outer"):  # 0
        with tracer.part("inner"):  # 1 to 2
            pass
        with tracer.part("inner"), tracer.part("innermost"):  # 3, 4 to 5, 6
            pass
    spans = tracer.of_this_thread()  # the outer one ends at 7
    assert totals(spans) == {"outer": 3.0, "inner": 3.0, "innermost": 1.0}
    assert all(a.ended <= b.began for a, b in pairwise(spans))


def test_a_part_that_fails_ends() -> None:
    ticks = _ticking()
    tracer = Tracer(lambda: next(ticks))
    with tracer.part("outer"), pytest.raises(ValueError, match="wrong"), tracer.part("inner"):
        raise ValueError("wrong")
    assert totals(tracer.of_this_thread()) == {"outer": 2.0, "inner": 1.0}


def test_threads_do_not_interrupt_each_other() -> None:
    tracer = Tracer()

    def work() -> None:
        with tracer.part("theirs"):
            pass

    with tracer.part("mine"):
        other = threading.Thread(target=work)
        other.start()
        other.join()
    assert [span.name for span in tracer.of_this_thread()] == ["mine"]
    assert [span.name for span in tracer.of_other_threads()] == ["theirs"]


def test_a_wait_counts_as_what_the_others_did_meanwhile() -> None:
    own = [Span("work", 0, 10), Span("wait", 10, 20)]
    others = [Span("encode", 5, 12), Span("sync", 12, 17), Span("sync", 30, 40)]
    found = explain_waits(own, "wait", others)
    assert found == {"work": 10, "encode": 2, "sync": 5, "wait": 3}
    assert sum(found.values()) == 20


def test_the_parts_of_a_batch_add_up_to_its_time() -> None:
    durations = {
        "triggerExecution": 1_000,
        "addBatch": 800,
        "latestOffset": 20,
        "getBatch": 10,
        "walCommit": 40,
        "commitOffsets": 50,
        "queryPlanning": 60,
    }
    tasks = Tasks(
        [Task(1, 10_000, 10_300), Task(2, 10_010, 10_200)],
        [Task(3, 10_320, 10_700), Task(4, 10_320, 10_740)],
    )
    traces = {
        3: Trace(3, 10.330, 0.360, {parts.PROCESS: 0.3, parts.SYNC: 0.06}, {parts.SYNC: 0.1}),
        4: Trace(4, 10.340, 0.390, {parts.PROCESS: 0.390}, {parts.SYNC: 0.3}),
    }
    found = divide(durations, tasks, traces)
    assert sum(found[part] for part in parts.ALL) == pytest.approx(found["total_ms"])
    assert found[parts.SHUFFLE] == 300
    assert found[parts.PROCESS] == pytest.approx(345)
    assert found[parts.TASK_START] == pytest.approx(15)
    assert found[parts.TASK_END] == pytest.approx(10)
    assert found[parts.SLOWER] == pytest.approx(20)
    assert found[parts.SCHEDULE] == 800 - 300 - 420
    assert found[parts.SPARK_OTHER] == pytest.approx(20)
    assert found["in_background_ms"] == pytest.approx(200)


def test_tasks_are_found_by_query_and_batch(tmp_path: Path) -> None:
    batch = {"sql.streaming.queryId": "q", "streaming.sql.batchId": "7"}
    events = [
        {"Event": "SparkListenerStageSubmitted", "Stage Info": {"Stage ID": 0}, "Properties": {}},
        _ended(stage=0, kind="ResultTask", task=1),
        {
            "Event": "SparkListenerStageSubmitted",
            "Stage Info": {"Stage ID": 4},
            "Properties": batch,
        },
        _ended(stage=4, kind="ShuffleMapTask", task=2),
        _ended(stage=4, kind="ResultTask", task=3),
    ]
    (tmp_path / "log").write_text("\n".join(map(json.dumps, events)))
    assert read_tasks(tmp_path) == {("q", 7): Tasks([Task(2, 5, 9)], [Task(3, 5, 9)])}


def _ended(stage: int, kind: str, task: int) -> dict[str, object]:
    info = {"Task ID": task, "Launch Time": 5, "Finish Time": 9}
    return {
        "Event": "SparkListenerTaskEnd",
        "Stage ID": stage,
        "Task Type": kind,
        "Task Info": info,
    }


def test_what_is_traced_is_there_and_is_shown() -> None:
    for owner, name, part in TRACED:
        assert callable(getattr(owner, name))
        assert part in parts.OWN
