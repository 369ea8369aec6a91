"""The README's job and the tutorial run as they are printed, as scripts of somebody who has only
that page."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from tests.support.spark_runs import wait_until

_ROOT = Path(__file__).parents[2]
_BLOCK = re.compile(r"```(python|sh)\n(.*?)```", re.DOTALL)
#: It would take the state of all other tests away, too.
_CLEARS_MEMORY = "rm -rf /dev/shm/trailmark-$(id -u)\n"
_PATIENCE_S = 600


def test_the_job_of_the_readme_goes_on_after_a_kill(tmp_path: Path) -> None:
    (code,) = (text for kind, text in _blocks("README.md") if kind == "python")
    (tmp_path / "job.py").write_text(code)
    (tmp_path / "in").mkdir()
    orders = [_orders(file) for file in range(2)]
    for file, table in enumerate(orders):
        lines = (json.dumps(order) + "\n" for order in table.to_pylist())
        (tmp_path / f"in/.{file}").write_text("".join(lines))
        (tmp_path / f"in/.{file}").rename(tmp_path / f"in/{file}.json")
        _run_until(tmp_path, _averages(orders[: file + 1]).total())
    assert _found(tmp_path) == _averages(orders)


def test_the_job_has_twenty_lines() -> None:
    (code,) = (text for kind, text in _blocks("README.md") if kind == "python")
    assert len([line for line in code.splitlines() if line.strip()]) <= 20


def test_the_tutorial_does_what_it_says(tmp_path: Path) -> None:
    install, *blocks = _blocks("docs/tutorial.md")
    assert install[0] == "sh"
    assert "pip install" in install[1]
    said = ""
    for kind, text in blocks:
        if kind == "python":
            name = re.match(r"# (\w+\.py)\n", text)
            assert name is not None, text
            (tmp_path / name[1]).write_text(text)
            continue
        script = text.replace(_CLEARS_MEMORY, "")
        done = subprocess.run(
            ["bash", "-e", "-c", script],
            cwd=tmp_path,
            env=_as_user(tmp_path),
            capture_output=True,
            text=True,
            timeout=_PATIENCE_S,
        )
        assert done.returncode == 0, f"{script}\n{done.stdout}\n{done.stderr}"
        said += done.stdout
    shown = (
        "bucket  batch  committed",
        "20,000 orders",
        "aggregate by item, windows of 5 tuples every 1",
    )
    assert [words for words in shown if words not in said] == []
    assert not (tmp_path / "logs").exists(), "it ends with everything deleted"


def _run_until(place: Path, results: int) -> None:
    """Runs the job, and kills it when there are so many results."""
    command = [sys.executable, "job.py"]
    job = subprocess.Popen(command, cwd=place, env=_as_user(place), start_new_session=True)
    try:
        wait_until("its results", lambda: _found(place).total() >= results)
    finally:
        os.killpg(job.pid, signal.SIGKILL)
        job.wait()


def _blocks(page: str) -> list[tuple[str, str]]:
    return [(kind, text) for kind, text in _BLOCK.findall((_ROOT / page).read_text())]


def _as_user(home: Path) -> dict[str, str]:
    """The environment of somebody who has activated the one that Trailmark is installed in."""
    kept = ("JAVA_HOME", "PYSPARK_SUBMIT_ARGS", "LANG", "SPARK_HOME")
    environment = {name: os.environ[name] for name in kept if name in os.environ}
    return environment | {
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.defpath}",
        "HOME": str(home),
    }


def _orders(file: int) -> pa.Table:
    """In a file an item has one price, so that the order of its rows is no matter."""
    items = np.random.default_rng(file).integers(0, 20, 450, dtype=np.int32)
    return pa.table({"item_id": items, "item_price": (items + 100 * file).astype(np.int32)})


def _averages(tables: list[pa.Table]) -> Counter[tuple[int, str]]:
    """The same query, by hand."""
    prices: dict[int, list[int]] = {}
    results: Counter[tuple[int, str]] = Counter()
    for table in tables:
        for row in table.to_pylist():
            window = prices.setdefault(row["item_id"], [])
            window.append(row["item_price"])
            if len(window) == 10:
                results[row["item_id"], (sum(window) / 10).hex()] += 1
                window.clear()
    return results


def _found(root: Path) -> Counter[tuple[int, str]]:
    """What Spark's sink has committed, by its own log."""
    results: Counter[tuple[int, str]] = Counter()
    for batch in (root / "out/_spark_metadata").glob("[0-9]*"):
        for line in batch.read_text().splitlines()[1:]:
            path = json.loads(line)["path"].removeprefix("file://")
            for row in pq.read_table(path, partitioning=None).to_pylist():
                results[row["item_id"], row["avg_price"].hex()] += 1
    return results
