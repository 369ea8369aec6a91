"""The demonstration as a reader runs it, and that it would notice wrong results."""

from __future__ import annotations

import json
import os
import re
import signal
import struct
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from demo import __main__ as command
from demo import story
from demo.display import Display
from demo.orders import WINDOW, Workload, expected_results, write_orders
from demo.results import Rows, compare, read_sink

_PROJECT = Path(__file__).parents[2]
_SMALL = ["--files", "8", "--orders-per-file", "60000", "--items", "10000"]
#: So little time that a few small batches are too many to be repeated: footprints are needed.
_SMALL += ["--recover-within", "30 milliseconds"]
_SHARED = Path("/dev/shm")


def _start(tmp_path: Path) -> subprocess.Popen[str]:
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    return subprocess.Popen(
        [sys.executable, "-m", "demo", *_SMALL, "--picture", str(tmp_path / "picture.png")],
        cwd=_PROJECT,
        env=os.environ | {"TMPDIR": str(temporary)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def _caches(tmp_path: Path, process: subprocess.Popen[str]) -> list[Path]:
    """In shared memory, or where there is none."""
    places = (_SHARED, tmp_path / "temporary")
    return [cache for at in places for cache in at.glob(f"trailmark-demo-cache-{process.pid}-*")]


def _processes_that_name(path: Path) -> list[str]:
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            line = (process / "cmdline").read_bytes()
        except OSError:
            continue
        if os.fsencode(path) in line:
            found.append(line.replace(b"\0", b" ").decode(errors="replace"))
    return found


def _assert_nothing_left(tmp_path: Path, process: subprocess.Popen[str]) -> None:
    assert list((tmp_path / "temporary").iterdir()) == []
    assert _processes_that_name(tmp_path / "temporary") == []
    assert _caches(tmp_path, process) == []


def test_a_killed_query_recovers_and_ends_with_equal_results(tmp_path: Path) -> None:
    process = _start(tmp_path)
    said, _ = process.communicate(timeout=600)
    assert process.returncode == 0, said
    assert "All results are equal" in said
    assert said.count("averages, equal") == 2
    assert "kill -9 after batch 4" in said
    recoveries = re.findall(r"recovered in [\d.]+ s .*: ([\d,]+) windows .* ([\d,]+) tuples", said)
    assert recoveries, said
    assert any(int(windows.replace(",", "")) > 0 for windows, _ in recoveries)
    assert len(said.splitlines()) < 40
    _assert_is_picture(tmp_path / "picture.png")
    _assert_nothing_left(tmp_path, process)


def _assert_is_picture(path: Path) -> None:
    content = path.read_bytes()
    assert content.startswith(b"\x89PNG\r\n\x1a\n")
    width, height = struct.unpack(">II", content[16:24])
    assert 800 <= width <= 3000
    assert 400 <= height <= 2000
    assert len(content) > 20_000


@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_demonstration_leaves_nothing_behind(tmp_path: Path, sent: int) -> None:
    process = _start(tmp_path)
    deadline = time.monotonic() + 120
    while not any("SparkSubmit" in line for line in _processes_that_name(tmp_path / "temporary")):
        assert process.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.1)
    assert len(_caches(tmp_path, process)) == 1
    process.send_signal(sent)
    said, _ = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "Interrupted" in said
    assert "Traceback" not in said
    _assert_nothing_left(tmp_path, process)


_GOOD = Rows.of([1, 2, 2, 3], [10.5, 20.1, 20.1, 0.0], [10, 10, 10, 10])


def test_equal_results_are_equal_in_any_order() -> None:
    again = Rows.of([3, 2, 1, 2], [0.0, 20.1, 10.5, 20.1], [10, 10, 10, 10])
    assert not compare(_GOOD, again)


@pytest.mark.parametrize(
    ("found", "missing", "extra"),
    [
        pytest.param(Rows.of([1, 2, 3], [10.5, 20.1, 0.0], [10] * 3), 1, 0, id="one lost"),
        pytest.param(Rows.of([], [], []), 4, 0, id="all lost"),
        pytest.param(
            Rows.of([1, 1, 2, 2, 3], [10.5, 10.5, 20.1, 20.1, 0.0], [10] * 5), 0, 1, id="one twice"
        ),
        pytest.param(
            Rows.of([1, 2, 2, 3], [10.5, 20.1, np.nextafter(20.1, 0), 0.0], [10] * 4),
            *(1, 1),
            id="another last bit",
        ),
        pytest.param(
            Rows.of([1, 2, 2, 3], [10.5, 20.1, 20.1, -0.0], [10] * 4), 1, 1, id="another sign"
        ),
        pytest.param(
            Rows.of([1, 2, 2, 4], [10.5, 20.1, 20.1, 0.0], [10] * 4), 1, 1, id="another item"
        ),
        pytest.param(
            Rows.of([1, 2, 2, 3], [10.5, 20.1, 20.1, 0.0], [10, 10, 9, 10]), 1, 1, id="too short"
        ),
    ],
)
def test_any_other_result_is_a_difference(
    found: Rows, missing: int, extra: int, capsys: pytest.CaptureFixture[str]
) -> None:
    difference = compare(_GOOD, found)
    assert difference
    assert (difference.missing, difference.extra) == (missing, extra)
    runs = {"first": _GOOD, "second": found}
    assert not story.report_equality(_GOOD, runs, Display(4, sys.stdout))
    assert "not equal" in capsys.readouterr().out


def test_results_that_differ_give_exit_code_1(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(story, "demonstrate", lambda *_: False)
    assert command.main([]) == 1
    monkeypatch.setattr(story, "demonstrate", lambda *_: True)
    assert command.main([]) == 0


def test_what_is_computed_by_hand_is_what_one_order_at_a_time_gives(tmp_path: Path) -> None:
    write_orders(Workload(files=5, orders_per_file=400, items=30), tmp_path / "orders")
    windows: dict[int, list[int]] = {}
    results = []
    for path in sorted((tmp_path / "orders").iterdir()):
        for row in pq.read_table(path).to_pylist():
            window = windows.setdefault(row["item_id"], [])
            window.append(row["item_price"])
            if len(window) == WINDOW:
                results.append((row["item_id"], sum(window) / WINDOW, WINDOW))
                window.clear()
    assert len(results) > 100
    assert not compare(
        Rows.of(*zip(*results, strict=True)), expected_results(tmp_path / "orders", 30)
    )


def test_the_order_within_a_batch_does_not_matter(tmp_path: Path) -> None:
    orders = tmp_path / "orders"
    write_orders(Workload(files=5, orders_per_file=400, items=30), orders)
    before = expected_results(orders, 30)
    for path in orders.iterdir():
        table = pq.read_table(path)
        pq.write_table(table.take(np.random.default_rng(1).permutation(len(table))), path)
    assert not compare(before, expected_results(orders, 30))


def test_only_files_of_committed_batches_are_read(tmp_path: Path) -> None:
    sink = tmp_path / "a sink"
    (sink / "_spark_metadata").mkdir(parents=True)
    lines = []
    for number, name in enumerate(("part-0.parquet", "part-1.parquet", "of-a-killed-task.parquet")):
        columns = {"item_id": pa.array([number], pa.int32()), "avg_price": [1.5], "orders": [10]}
        pq.write_table(pa.table(columns), sink / name)
        lines.append(json.dumps({"path": (sink / name).as_uri(), "action": "add"}))
    (sink / "_spark_metadata" / "0").write_text(f"v1\n{lines[0]}")
    (sink / "_spark_metadata" / "1.compact").write_text(f"v1\n{lines[0]}\n{lines[1]}")
    (sink / "_spark_metadata" / ".2.tmp").write_text(f"v1\n{lines[2]}")
    assert not compare(Rows.of([0, 1], [1.5, 1.5], [10, 10]), read_sink(sink))
