"""Scripts as people run them: not activated, from their own directory, and never told to stop.

Nothing of this repository is in their environment but the Python that Trailmark is installed in.
"""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import trailmark as tm

PATIENCE_S = 600
_SESSION = """
from pyspark.sql import SparkSession
import trailmark as tm

spark = SparkSession.builder.master("local[2]").getOrCreate()
"""
_OPERATOR = """
orders = spark.readStream.schema("item int, price int").json("in")
average = tm.aggregate(
    orders,
    by="item",
    window=tm.count_window(3),
    values={"mean": tm.avg("price"), "last": tm.last("price")},
    path="orders-average",
)
"""
#: Every day the same script, for whatever has come since.
_DAILY = f"""
{_SESSION}
{_OPERATOR}
writer = average.writeStream.option("checkpointLocation", "ckpt/average").trigger(availableNow=True)
writer.start("out").awaitTermination()

writer = orders.writeStream.format("trailmark").option("checkpointLocation", "ckpt/kept")
writer.trigger(availableNow=True).start("kept").awaitTermination()
print("kept", spark.read.format("trailmark").load("kept").count(), tm.read_table("kept").num_rows)
"""
#: A notebook whose cells are run one by one, and all of them once more.
_CELLS = [
    _SESSION,
    "listener = tm.listen(spark)",
    _OPERATOR,
    'writer = average.writeStream.option("checkpointLocation", "ckpt/average")',
    'query = writer.start("out")',
    "query.processAllAvailable()",
    "query.stop()",
]
#: What is tried in it meanwhile.
_MISTAKES = [
    _OPERATOR.replace("path=", "recover_witin='1 second', path="),
    _OPERATOR.replace("orders-average", "in/orders-average"),
    f'import os; os.chdir("/"){_OPERATOR}',
]
_NOTEBOOK = f"""
import json, sys
names = {{}}
for orders in json.loads(sys.argv[1]):
    with open(f"in/{{len(orders)}}.json", "w") as file:
        file.writelines(json.dumps(order) + "\\n" for order in orders)
    for cell in {_CELLS!r}:
        exec(cell, names)
for cell in {_MISTAKES!r}:
    try:
        exec(cell, names)
    except Exception as error:
        print("TOLD", type(error).__name__, str(error).splitlines()[0])
"""


class _Place:
    """A directory with scripts, the orders they read, and the answers by hand."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._open: dict[int, list[int]] = {}
        self.expected: list[tuple[int, float, int]] = []
        self.orders = 0
        (root / "in").mkdir()

    def day(self, number: int, rows: int = 20) -> list[dict[str, int]]:
        """Orders of a day, as many as no other day has."""
        made = [{"item": n % 3, "price": 100 * number + n} for n in range(rows + number)]
        for order in made:
            window = self._open.setdefault(order["item"], [])
            window.append(order["price"])
            if len(window) == 3:
                self.expected.append((order["item"], sum(window) / 3, window[-1]))
                window.clear()
        self.orders += len(made)
        return made

    def add(self, orders: list[dict[str, int]]) -> None:
        lines = (json.dumps(order) + "\n" for order in orders)
        (self.root / f"in/{len(orders)}.json").write_text("".join(lines))

    def run(
        self, script: str, *arguments: str, python: str | None = sys.executable, path: str = ""
    ) -> subprocess.CompletedProcess[str]:
        """Runs a script as a user does, who has set at most PYSPARK_PYTHON."""
        file = self.root / "script.py"
        file.write_text(script)
        kept = ("JAVA_HOME", "PYSPARK_SUBMIT_ARGS", "LANG")
        environment = {name: os.environ[name] for name in kept if name in os.environ}
        environment |= {"PATH": f"{path}{os.defpath}", "HOME": str(self.root)}
        if python is not None:
            environment["PYSPARK_PYTHON"] = python
        return subprocess.run(
            [sys.executable, file.name, *arguments],
            cwd=self.root,
            env=environment,
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=False,
        )

    def check(self) -> None:
        """Every window that is full is in the sink and can be read from the logs, once."""
        files = (self.root / "out").glob("*.parquet")
        sink = pa.concat_tables(pq.read_table(file) for file in files)
        for table in (sink, tm.read_table(self.root / "orders-average")):
            rows = [tuple(row.values()) for row in table.to_pylist()]
            assert sorted(rows) == sorted(self.expected)


@pytest.fixture
def place(tmp_path: Path) -> _Place:
    return _Place(tmp_path)


def test_three_days_of_a_job_and_a_notebook_give_every_window_once(place: _Place) -> None:
    for number in range(2):
        place.add(place.day(number))
        done = place.run(_DAILY)
        assert done.returncode == 0, done.stderr
        place.check()
        assert f"kept {place.orders} {place.orders}\n" in done.stdout
    # The third day somebody opens a notebook, and runs all of its cells twice.
    days = json.dumps([place.day(2), place.day(3)])
    done = place.run(_NOTEBOOK, days)
    assert done.returncode == 0, done.stderr
    place.check()
    assert len(place.expected) > 20
    misspelt, among, moved = (each for each in done.stdout.splitlines() if each[:5] == "TOLD ")
    assert "TypeError" in misspelt
    assert "recover_witin" in misspelt
    assert f"in the same place: {place.root}/in/orders-average and in." in among
    assert f"could be /orders-average or {place.root}/orders-average" in moved
    command = [str(Path(sys.executable).with_name("trailmark")), "verify", "orders-average"]
    subprocess.run(command, cwd=place.root, check=True, stdout=subprocess.DEVNULL)


def test_a_python_without_trailmark_is_told_in_one_line_with_what_to_set(place: _Place) -> None:
    bare = place.root / "bin" / "python3"
    bare.parent.mkdir()
    bare.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -I -S "$@"\n')
    bare.chmod(0o755)
    place.add(place.day(0))
    done = place.run(_DAILY, python=None, path=f"{bare.parent}:")
    assert done.returncode == 1
    what, where, fix = done.stderr.strip().splitlines()[-3:]
    assert what.startswith(f"trailmark.errors.SettingError: Spark's workers run {bare} (ModuleNot")
    assert where == "  where: PYSPARK_PYTHON"
    assert f"Set PYSPARK_PYTHON={sys.executable} before" in fix
    assert not (place.root / "orders-average").exists()
