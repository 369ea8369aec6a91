"""The examples run as they are, but for the directory: scripts in a session, the notebook in
Jupyter's own kernel."""

from __future__ import annotations

import json
import os
import re
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import trailmark as tm
from tests.support.spark_runs import environment
from tests.support.stream_steps import is_interrupted

_ROOT = Path(__file__).parents[2]
_EXAMPLES = _ROOT / "examples"
_PATIENCE_S = 300
#: A path as the scripts write it; their argument is one of these words, too.
_PATH = re.compile(r'"((?:in|out|history|logs|ckpt|streams|tables)(?:/\w+)?)"(?! in)')


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the examples are run: with prices of 1 that come, and a history of prices of 2."""
    for directory, price in (("in", 1), ("history", 2)):
        (tmp_path / directory).mkdir()
        orders = [f'{{"item": {item}, "price": {price}}}\n' for item in range(3)] * 20
        (tmp_path / directory / "orders.json").write_text("".join(orders))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_every_example_is_named_and_run() -> None:
    files = {path.name for path in _EXAMPLES.iterdir() if path.suffix in (".py", ".ipynb")}
    named = set(re.findall(r"\]\(([\w.]+\.(?:py|ipynb))\)", (_EXAMPLES / "README.md").read_text()))
    assert files == named
    here = Path(__file__).read_text()
    assert [name for name in files if name not in here] == []


@pytest.mark.parametrize(
    ("page", "name"), [("kafka.md", "through_kafka.py"), ("tables.md", "into_a_table.py")]
)
def test_a_page_prints_an_example_as_it_is(page: str, name: str) -> None:
    """And tests/spark/test_kafka.py runs the one that needs a broker."""
    _, _, code = (_EXAMPLES / name).read_text().partition('"""\n\n')
    assert f"```python\n{code}```" in (_ROOT / "docs" / page).read_text()


def test_a_scheduled_job_and_a_database_have_every_result_once(
    spark: SparkSession, place: Path
) -> None:
    for _ in range(2):  # the second finds nothing new
        _run("scheduled_job.py", place)
        names = _run("into_a_database.py", place)
        with closing(sqlite3.connect("shop.db")) as database:
            rows = database.execute("SELECT item, mean FROM averages").fetchall()
        assert sorted(rows) == [(item, 1.0) for item in range(3) for _ in range(2)]
        names["insert"](spark.createDataFrame([(9, 9.0)], "item int, mean double"), 0)


def test_a_table_has_every_result_once_though_the_driver_dies_before_sparks_commit(
    spark: SparkSession, place: Path
) -> None:
    deltalake = pytest.importorskip("deltalake", reason="tables are written by deltalake")
    _run("scheduled_job.py", place)
    dying = (_EXAMPLES / "into_a_table.py").read_text()
    die = "lambda rows, number: (append(rows, number), os.kill(os.getpid(), 9))"
    assert "foreachBatch(append)" in dying
    (place / "dying.py").write_text(dying.replace("foreachBatch(append)", f"foreachBatch({die})"))
    died = subprocess.run(
        [sys.executable, "dying.py"], cwd=place, env=environment(), timeout=_PATIENCE_S
    )
    assert died.returncode == -signal.SIGKILL
    expected = [(item, 1.0) for item in range(3) for _ in range(2)]
    for _ in range(3):  # the second is a batch that the table has, the third finds nothing new
        rows = deltalake.DeltaTable("tables/averages").to_pyarrow_table().to_pylist()
        assert sorted((row["item"], row["mean"]) for row in rows) == expected
        _run("into_a_table.py", place)
    assert not is_interrupted("ckpt/averages")


def test_a_driver_that_wakes_up_behind_another_one_adds_nothing_to_a_table(
    spark: SparkSession, place: Path
) -> None:
    """It had looked how far the table was before the other one went on."""
    deltalake = pytest.importorskip("deltalake", reason="tables are written by deltalake")
    _run("scheduled_job.py", place)
    names = _run("into_a_table.py", place)
    before = deltalake.DeltaTable("tables/averages")
    rows = spark.createDataFrame([(9, 9.0)], "item int, mean double")
    names["append"](rows, 7)
    names["DeltaTable"] = lambda _: before
    with pytest.raises(deltalake.exceptions.CommitFailedError):
        names["append"](rows, 7)
    found = deltalake.DeltaTable("tables/averages").to_pyarrow_table()["item"].to_pylist()
    assert found.count(9) == 1


def test_the_past_comes_first(
    spark: SparkSession, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr("sys.argv", ["past_then_live.py", "history"])
        with pytest.raises(SystemExit) as ended:
            _run("past_then_live.py", place)
        assert ended.value.code is None
    _run("past_then_live.py", place, until="spark.streams.awaitAnyTermination()")
    queries = sorted(spark.streams.active, key=lambda each: "highest" in str(each.lastProgress))
    for query in queries:
        query.processAllAvailable()
    for query in queries:
        query.processAllAvailable()
        query.stop()
    highest = tm.read_table("logs/highest").to_pylist()
    for item in range(3):
        of_item = [row["highest"] for row in highest if row["item"] == item]
        assert of_item == [2, 2, 1, 1]


def _run(name: str, place: Path, until: str | None = None) -> dict[str, Any]:
    """What a script defines. The session's directory is not the test's, so its paths are full."""
    text = (_EXAMPLES / name).read_text()
    if until is not None:
        assert text.endswith(f"{until}\n"), "it runs for ever"
        text = text.removesuffix(f"{until}\n")
    text = _PATH.sub(rf'"{place}/\1"', text)
    names: dict[str, Any] = {"__name__": "__main__"}
    exec(compile(text, name, "exec"), names)
    return names


def test_cells_of_the_notebook_take_the_place_of_what_they_defined_and_show_it(
    tmp_path: Path,
) -> None:
    cells = _executed("notebook.ipynb", tmp_path, times=2)
    _, status = [html for html in _in_html(cells) if "<svg" in html and "<th" in html]
    assert "windows of 10 tuples" in status
    assert "a recovery now would take (objective 2 s)" in status
    files = sorted((tmp_path / "in").iterdir())
    orders = [json.loads(line) for path in files for line in path.read_text().splitlines()]
    items = [order["item"] for order in orders]
    assert len(files) == 2
    table = tm.read_table(tmp_path / "logs/average")
    assert table.num_rows == sum(items.count(item) // 10 for item in range(20))
    assert tm.status(tmp_path / "logs/average").is_sound


def _executed(name: str, place: Path, times: int) -> Sequence[Any]:
    """The code cells of a notebook that was run in a kernel, each cell so often."""
    nbformat = pytest.importorskip("nbformat", reason="notebooks are run by nbclient")
    nbclient = pytest.importorskip("nbclient", reason="notebooks are run by nbclient")
    pytest.importorskip("ipykernel", reason="notebooks are run in a kernel of ipykernel")
    notebook = nbformat.read(_EXAMPLES / name, as_version=4)
    code = [cell for cell in notebook.cells if cell.cell_type == "code" for _ in range(times)]
    notebook.cells = [nbformat.v4.new_code_cell(cell.source) for cell in code]
    client = nbclient.NotebookClient(
        notebook,
        timeout=_PATIENCE_S,
        kernel_name="python3",
        resources={"metadata": {"path": str(place)}},
    )
    client.execute(env=os.environ | {"SPARK_LOCAL_IP": "127.0.0.1"})
    return list(notebook.cells)


def _in_html(cells: Sequence[Any]) -> list[str]:
    found = [output for cell in cells for output in cell.outputs if "data" in output]
    return [output.data["text/html"] for output in found if "text/html" in output.data]
