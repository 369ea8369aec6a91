"""A worker without Trailmark says so in one line, whatever it was sent."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import cast
from unittest import mock

import pytest
from pyspark import cloudpickle
from pyspark.sql import SparkSession

from trailmark.errors import SettingError
from trailmark.operators.identities import Identities
from trailmark.spark import workers
from trailmark.spark.workers import carried, check_workers

_WORKER = """
import sys
class Missing:
    def find_spec(self, name, path, target=None):
        if name == {missing!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
sys.meta_path.insert(0, Missing())
from pyspark import cloudpickle
task = cloudpickle.loads(open(sys.argv[1], "rb").read())
print(*task(iter([1, 2])))
"""


def _in_worker(path: Path, missing: str) -> subprocess.CompletedProcess[str]:
    plan = Identities  # something of Trailmark's, that cannot be unpacked without it
    task = carried(lambda plan, batches: (batch * 10 for batch in batches), plan, "its_name")
    assert task.__name__ == "its_name", "what Spark shows in its plans"
    path.write_bytes(cloudpickle.dumps(task))  # type: ignore[no-untyped-call]
    code = _WORKER.format(missing=missing)
    command = [sys.executable, "-c", code, str(path)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_a_worker_with_trailmark_works(tmp_path: Path) -> None:
    assert _in_worker(tmp_path / "task", "").stdout == "10 20\n"


def test_a_worker_without_trailmark_says_what_to_set(tmp_path: Path) -> None:
    found = _in_worker(tmp_path / "task", "trailmark")
    *_, last = found.stderr.strip().splitlines()
    assert last.startswith(f"RuntimeError: A worker of Spark runs {sys.executable}, which has no ")
    assert "PYSPARK_PYTHON" in last


def test_another_module_that_is_missing_is_told_as_it_is(tmp_path: Path) -> None:
    found = _in_worker(tmp_path / "task", "trailmark.operators")
    assert found.stderr.strip().splitlines()[-1].startswith("ModuleNotFoundError")


def test_a_module_of_the_users_that_is_missing_is_named_with_what_to_do(tmp_path: Path) -> None:
    module = tmp_path / "their_own.py"
    module.write_text("class Operator: ...\n")
    task = tmp_path / "task"
    pack = (
        "import sys; sys.path.insert(0, sys.argv[2])\n"
        "from pyspark import cloudpickle\n"
        "from trailmark.spark.workers import carried\n"
        "from their_own import Operator\n"
        "task = carried(lambda plan, batches: batches, Operator, 'trailmark_apply')\n"
        "open(sys.argv[1], 'wb').write(cloudpickle.dumps(task))\n"
    )
    subprocess.run([sys.executable, "-c", pack, str(task), str(tmp_path)], check=True)
    command = [sys.executable, "-c", _WORKER.format(missing=""), str(task)]
    for content in ("", "class Another: ..."):
        said = subprocess.run(command, capture_output=True, text=True, check=False).stderr
        assert "SettingError: A worker of Spark cannot unpack the code" in said
        assert "their_own" in said
        assert "addPyFile" in said
        module.write_text(content)  # what is there then is not what the driver had
        command = [sys.executable, "-c", f"import sys; sys.path.insert(0, {str(tmp_path)!r})\n"]
        command = [*command[:2], command[2] + _WORKER.format(missing=""), str(task)]


def test_a_driver_that_was_set_up_by_itself_is_not_asked_from_outside(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A script may have found Trailmark in ways that another process of its Python does not."""
    session = mock.Mock()
    session.sparkContext.master = "local[2]"
    session.sparkContext.pythonExec = sys.executable
    session.sparkContext._jvm.System.getProperty.return_value = "/"
    monkeypatch.setattr(sys, "executable", "/usr/bin/embedding-program")
    check_workers(session)
    monkeypatch.setattr(sys, "version_info", (3, 99))
    monkeypatch.setattr(workers, "_fine", set())
    with pytest.raises(SettingError, match="and the driver /usr/bin/embedding-program"):
        check_workers(session)


def test_a_session_of_spark_connect_is_left_to_spark() -> None:
    check_workers(cast(SparkSession, object()))
