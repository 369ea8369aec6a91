"""kill -9 of a driver that merges three streams and counts their rows in windows, while processes
write these streams, of which one is stopped and one is killed, too: every row counts once, in its
order. Also while it answers without some of them, and while it replaces these answers."""

from __future__ import annotations

import random
import time
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from datetime import timezone
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

import trailmark as tm
from tests.support.ingesting import START, Ingested, ingesting
from tests.support.seeds import seeds
from tests.support.spark_orders import sink_files
from tests.support.spark_runs import Application
from tests.support.stream_query import Step
from tests.support.stream_steps import newest_commit
from trailmark.log import LocalStorage
from trailmark.streams.union.ahead import Phase
from trailmark.streams.union.decisions import newest_decision

_NAMES = ("eu", "us", "asia")
_WINDOW_S = 10
_ANSWERING = {"answer_within": "1 second"}


@pytest.mark.parametrize("seed", seeds(1))
def test_killed_and_stopped_processes_leave_every_row_counted_once_and_in_order(
    tmp_path: Path, seed: int
) -> None:
    """Asia is stopped, us is killed meanwhile, and the driver in each phase."""
    print(f"TRAILMARK_SEED={seed} TRAILMARK_CASES=1 repeats it, but for the moments of the kills.")
    rng, step = random.Random(seed), _step(tmp_path)
    union = LocalStorage(f"{step.operator}-union")
    with ingesting(tmp_path, _NAMES, seed) as ingesters:
        for killed_in in Phase:
            after = newest_commit(step.checkpoint)
            with Application.of_steps(tmp_path / "app", [step]) as application:
                application.wait_for_batch(step, after + 1)
                if killed_in is Phase.UP_FAILURE:
                    ingesters["asia"].stop()
                    application.wait_until("answers", partial(_has_answers, step.operator, after))
                    ingesters["us"].kill()
                    application.wait_until("both miss", lambda: _missing(union) == {"us", "asia"})
                elif killed_in is Phase.STABILIZATION:
                    assert "asia" in _missing(union)
                    ingesters["asia"].go_on()
                    application.wait_until("correction", lambda: _is_correcting(union))
                time.sleep(rng.uniform(0, 0.5))
                application.kill_driver(with_workers=rng.random() < 0.5)
            if killed_in is Phase.UP_FAILURE:
                ingesters["us"].start()
        for each in ingesters.values():
            each.end()
        rows = [row for each in ingesters.values() for row in each.rows()]
    rest = replace(step.ending(), options=_ANSWERING)
    with Application.of_steps(tmp_path / "app", [rest]) as application:
        application.finish()
    assert newest_decision(union).late_rows == 0
    assert _phase(union) is Phase.STABLE
    assert not any(tm.read_table(step.operator, answers="current")["tentative"].to_pylist())
    assert len(rows) > 500
    stable, tentative = _counted(step.target)
    assert stable == _expected(rows)
    assert tentative, "there were answers without asia"


def _step(root: Path) -> Step:
    return Step(
        "union",
        "union",
        "",
        str(root / "out"),
        str(root / "checkpoint"),
        operator=str(root / "counts"),
        inputs={name: str(root / name) for name in _NAMES},
        # Few rows, so that there is more than one batch to what is replaced.
        options={**_ANSWERING, "max_rows_per_trigger": "100"},
    )


def _has_answers(operator: str, after: int) -> bool:
    if _phase(LocalStorage(f"{operator}-union")) is not Phase.UP_FAILURE:
        return False
    results = tm.read_table(operator, answers="all", starting_batch=after + 1)
    return any(results["tentative"].to_pylist())


def _is_correcting(union: LocalStorage) -> bool:
    return _phase(union) is Phase.STABILIZATION


def _phase(union: LocalStorage) -> Phase:
    return newest_decision(union).phase


def _missing(union: LocalStorage) -> set[str]:
    ahead = newest_decision(union).ahead
    return set() if ahead is None else set(ahead.missing)


def _expected(rows: Sequence[Ingested]) -> dict[tuple[int, int], tuple[int, int, str]]:
    """Count, sum of ids and last source by key and window."""
    found: dict[tuple[int, int], tuple[int, int, str]] = defaultdict(lambda: (0, 0, ""))
    # What is of one time in one stream stays in the order of the stream.
    for row in sorted(rows, key=lambda row: (row.at_s, row.place)):
        window = (row.key, int(row.at_s // _WINDOW_S) * _WINDOW_S)
        n, total, _ = found[window]
        found[window] = (n + 1, total + row.number, _NAMES[row.place])
    return dict(found)


def _counted(
    out: str,
) -> tuple[dict[tuple[int, int], tuple[int, int, str]], list[tuple[int, int]]]:
    """What stands, once for each key and window, and of which of these there were answers."""
    found: dict[tuple[int, int], tuple[int, int, str]] = {}
    tentative: list[tuple[int, int]] = []
    for path in sink_files(out):
        row: dict[str, Any]
        for row in pq.ParquetFile(path, coerce_int96_timestamp_unit="us").read().to_pylist():
            begin = row["window"]["start"].replace(tzinfo=timezone.utc)
            key = (row["key"], int((begin - START).total_seconds()))
            if row["tentative"]:
                tentative.append(key)
                continue
            assert key not in found, f"window {key} came twice"
            found[key] = (row["n"], row["total"], row["sources"])
    return found, tentative
