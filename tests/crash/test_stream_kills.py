"""kill -9 of applications that write and follow persistent streams, and of parts of them."""

from __future__ import annotations

import os
import random
import signal
import time
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.support.cluster import Cluster
from tests.support.network import loopback_hosts
from tests.support.plain import plain_rows
from tests.support.seeds import seeds
from tests.support.spark_orders import sink_files
from tests.support.spark_runs import (
    EAGER_SPECULATION,
    SMALL_EXECUTORS,
    Application,
    all_processes,
    caught,
    executor_of,
    hold_a_worker,
    release,
    wait_until,
)
from tests.support.stream_query import RESULTS, Step
from tests.support.stream_steps import (
    Numbers,
    assert_has_each_once,
    expected_results,
    ids_in,
    is_interrupted,
    newest_commit,
)
from trailmark.streams.table import read_table


def _write_and_copy(root: Path, numbers: Numbers, stream: str, copy: str) -> list[Step]:
    write = Step("write", "write", str(numbers.directory), stream, str(root / "write"), slow_s=0.05)
    options = {"maxRowsPerTrigger": "100"}
    follow = Step("copy", "copy", stream, copy, str(root / "copy"), options=options)
    return [write, follow]


def _finish(root: Path, *steps: Step) -> None:
    """Lets one step after another come to the end of what is there."""
    with Application.of_steps(root / "app", [step.ending() for step in steps]) as application:
        application.finish()


@pytest.mark.parametrize("seed", seeds(1))
def test_a_driver_killed_while_it_writes_and_follows_loses_no_row_and_repeats_none(
    tmp_path: Path, seed: int
) -> None:
    _kill_driver(tmp_path, str(tmp_path / "stream"), str(tmp_path / "copy-of-it"), seed, kills=2)


def test_the_same_in_an_object_store(tmp_path: Path, s3_url: str) -> None:
    _kill_driver(tmp_path, f"{s3_url}/stream", f"{s3_url}/copy", seed=1, kills=1)


def _kill_driver(root: Path, stream: str, copy: str, seed: int, kills: int) -> None:
    print(f"TRAILMARK_SEED={seed} repeats it, but for the moments of the kills.")
    rng = random.Random(seed)
    numbers = Numbers(root / "in")
    steps = _write_and_copy(root, numbers, stream, copy)
    done = hits = 0
    while done < kills or (hits == 0 and done < 3 * kills):
        numbers.feed(6)
        before = newest_commit(steps[0].checkpoint)
        with Application.of_steps(root / "app", steps) as application:
            application.wait_for_batch(steps[0], before + 1)
            time.sleep(rng.uniform(0, 1.5))
            application.kill_driver(with_workers=rng.random() < 0.5)
        done += 1
        hits += any(is_interrupted(step.checkpoint) for step in steps)
        found = ids_in(stream)
        assert len(set(found)) == len(found), "nothing is there twice at any time"
    assert hits, "some batch was interrupted"
    _finish(root, *steps)
    assert_has_each_once(stream, numbers)
    assert_has_each_once(copy, numbers)


def test_python_workers_killed_at_any_moment_lose_no_row_and_repeat_none(tmp_path: Path) -> None:
    """Spark repeats a task whose worker is gone. Without the process that plans or commits for it,
    the query ends, and goes on when it is started again."""
    rng = random.Random(7)
    numbers = Numbers(tmp_path / "in")
    numbers.feed(24)
    steps = _write_and_copy(tmp_path, numbers, str(tmp_path / "stream"), str(tmp_path / "it"))
    killed = 0
    while killed < 4:
        application = Application.of_steps(tmp_path / "app", steps, master="local[2,4]")
        with application:
            application.wait_for_batch(steps[0], newest_commit(steps[0].checkpoint) + 1)
            while killed < 6 and application.is_running:
                workers = application.workers()
                if workers and application.kill_if_there(rng.choice(workers)):
                    killed += 1
                time.sleep(rng.uniform(0.1, 0.6))
    _finish(tmp_path, *steps)
    assert_has_each_once(tmp_path / "stream", numbers)
    assert_has_each_once(tmp_path / "it", numbers)


def test_a_twin_of_a_task_and_a_killed_executor_leave_no_trace_in_the_stream(
    tmp_path: Path,
) -> None:
    numbers = Numbers(tmp_path / "in")
    numbers.feed(8)
    (tmp_path / "trap").mkdir()
    stream = tmp_path / "stream"
    step = Step(
        "write",
        "write",
        str(numbers.directory),
        str(stream),
        str(tmp_path / "checkpoint"),
        trap=str(tmp_path / "trap"),
        slow_s=0.02,
    )
    conf = {**SMALL_EXECUTORS, **EAGER_SPECULATION}
    with (
        Cluster(tmp_path / "cluster", loopback_hosts(2)) as cluster,
        Application.of_steps(tmp_path / "app", [step], master=cluster.url, conf=conf) as running,
    ):
        running.wait_for_batch(step, 0)
        worker = hold_a_worker(running, step)
        held_in = newest_commit(step.checkpoint) + 1
        running.wait_for_batch(step, held_in)  # by the twin
        assert caught(step, "hold") == [worker], "it was not let go before"
        release(step)
        running.wait_for_batch(step, held_in + 1)
        worker = hold_a_worker(running, step)
        held_in = newest_commit(step.checkpoint) + 1
        executor = executor_of(worker)
        os.kill(executor, signal.SIGKILL)  # it belongs to the cluster, not to the application
        wait_until("it is gone", lambda: executor not in {p.pid for p in all_processes()})
        running.wait_for_batch(step, held_in)
        release(step)
        running.wait_for_batch(step, 7)
        running.kill_driver(with_workers=True)
    assert_has_each_once(stream, numbers)


@pytest.mark.parametrize("seed", seeds(1))
def test_three_queries_in_a_row_killed_in_turn_give_what_the_oracle_gives(
    tmp_path: Path, seed: int
) -> None:
    """Whoever is killed stops nobody upstream; those downstream wait and do not fail."""
    print(f"TRAILMARK_SEED={seed} repeats it, but for the moments of the kills.")
    rng = random.Random(seed)
    numbers = Numbers(tmp_path / "in")
    stream, operator, last = (str(tmp_path / name) for name in ("stream", "operator", "last"))
    steps = [
        Step("write", "write", str(numbers.directory), stream, str(tmp_path / "c1")),
        Step(
            "aggregate",
            "aggregate",
            stream,
            str(tmp_path / "results"),
            str(tmp_path / "c2"),
            operator=operator,
        ),
        Step("copy", "copy", operator, last, str(tmp_path / "c3"), columns=RESULTS),
    ]

    def begin(step: Step) -> Application:
        return Application.of_steps(tmp_path / f"app-{step.name}", [step], master="local[1]")

    running: dict[str, Application] = {}
    try:
        # The last ones first: they wait for what is not there yet.
        for step in reversed(steps):
            running[step.name] = begin(step)
        numbers.feed(3)
        for step in steps:
            running[step.name].wait_for_batch(step, 0)
        for victim in rng.sample(steps, 3):
            others = [step for step in steps if step is not victim]
            running[victim.name].kill_driver(with_workers=rng.random() < 0.5)
            numbers.feed(2)
            upstream = steps[: steps.index(victim)]
            before = {step.name: newest_commit(step.checkpoint) for step in upstream}
            for step in upstream:
                # Those before it go on without it.
                running[step.name].wait_for_batch(step, before[step.name] + 1)
            for step in others:
                assert running[step.name].is_running, running[step.name].story()
            running[victim.name] = begin(victim)
            before_victim = newest_commit(victim.checkpoint)
            numbers.feed(1)
            running[victim.name].wait_for_batch(victim, before_victim + 1)
        for application in running.values():
            assert application.is_running, application.story()
            application.kill_driver(with_workers=True)
    finally:
        for application in running.values():
            application.close()
    _finish(tmp_path, *steps)
    assert_has_each_once(stream, numbers)
    logged = read_table(operator, records="input")
    assert sorted(logged["id"].to_pylist()) == sorted(numbers.ids)
    expected = Counter(_tuples(read_table(operator)))
    assert Counter(_tuples(read_table(last))) == expected
    sink = pa.concat_tables(pq.read_table(path) for path in sink_files(str(tmp_path / "results")))
    assert Counter(_tuples(sink.select(["key", "n", "total"]))) == expected
    rows = [row for batch in logged.to_batches() for row in plain_rows(batch)]
    assert expected == expected_results(rows)
    assert expected.total() > 20
    wait_until("nothing is left", lambda: not any(a.processes() for a in running.values()), 30)


def _tuples(table: pa.Table) -> list[tuple[int, int, int]]:
    columns = (table.column(name).to_pylist() for name in ("key", "n", "total"))
    return list(zip(*columns, strict=True))
