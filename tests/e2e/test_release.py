"""What is released: an sdist that builds, and a wheel that needs no compiler and has its types.

The wheel is installed into an environment of its own, by what pip does with any wheel. Only the
packages it depends on are those of the tests.
"""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import venv
import zipfile
from pathlib import Path
from typing import NamedTuple

import pytest

_ROOT = Path(__file__).parents[2]
_SOURCES = ("src", "build_support", "pyproject.toml", "setup.py", "MANIFEST.in")
_TEXTS = ("README.md", "LICENSE")
_NOT_SOURCES = ("*.so", "*.egg-info", "__pycache__")
_COMPILER = re.compile(r"(^|-)(cc|c89|c99|gcc|g\+\+|c\+\+|cpp|clang|clang\+\+|tcc|zig)(-[\d.]+)?$")
_PATIENCE_S = 600
_JOB = """
import sys
import trailmark as tm
from pyspark.sql import SparkSession

assert tm.__file__.startswith(sys.prefix), tm.__file__
spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
highest = tm.aggregate(
    spark.readStream.schema("item int, price int").json("in"),
    by="item",
    window=tm.count_window(10),
    values={"highest": tm.max("price")},
    path="logs",
    buckets=2,
)
writer = highest.writeStream.format("trailmark").option("checkpointLocation", "ckpt")
writer.trigger(availableNow=True).start("highest").awaitTermination()
print(tm.__version__, *sorted(tm.read_table("highest")["highest"].to_pylist()))
"""
_TYPED = """
from pyspark.sql import DataFrame

import trailmark as tm


def highest(orders: DataFrame) -> DataFrame:
    reveal_type(tm.max("price"))
    return tm.aggregate(
        orders,
        by="item",
        window=tm.count_window("ten"),
        values={"highest": tm.max("price")},
        path="logs",
    )
"""


pytestmark = pytest.mark.skipif(
    sys.platform != "linux" or platform.machine() not in ("x86_64", "aarch64"),
    reason="wheels are for Linux on x86-64 and AArch64",
)


class _Released(NamedTuple):
    """What the release is made of, and an environment with its wheel, but without a compiler."""

    sdist: Path
    wheel: Path
    python: Path
    tools: Path

    def environment(self, home: Path) -> dict[str, str]:
        kept = ("JAVA_HOME", "PYSPARK_SUBMIT_ARGS", "LANG", "SPARK_HOME")
        found = {name: os.environ[name] for name in kept if name in os.environ}
        path = f"{self.python.parent}{os.pathsep}{self.tools}"
        return found | {"PATH": path, "HOME": str(home), "PYSPARK_PYTHON": str(self.python)}

    def run(self, *command: object, home: Path) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            list(map(str, command)),
            cwd=home,
            env=self.environment(home),
            capture_output=True,
            text=True,
            timeout=_PATIENCE_S,
            check=False,
        )


@pytest.fixture(scope="module")
def released(tmp_path_factory: pytest.TempPathFactory) -> _Released:
    place = tmp_path_factory.mktemp("released")
    sources = _copied_sources(place / "sources")
    target = place / "dist"
    command = ["build_support/release.py", str(target), "--machine", platform.machine()]
    done = subprocess.run(
        [sys.executable, *command], cwd=sources, capture_output=True, text=True, timeout=_PATIENCE_S
    )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    (sdist,), (wheel,) = target.glob("*.tar.gz"), target.glob("*.whl")
    tools = _all_but_compilers(place / "tools")
    python = _installed(wheel, place / "env", tools)
    return _Released(sdist, wheel, python, tools)


def _copied_sources(target: Path) -> Path:
    """What a clone has: building writes beside the sources, where other tests look."""
    for name in _SOURCES:
        if (_ROOT / name).is_dir():
            ignored = shutil.ignore_patterns(*_NOT_SOURCES)
            shutil.copytree(_ROOT / name, target / name, ignore=ignored)
        else:
            shutil.copy(_ROOT / name, target / name)
    for name in _TEXTS:
        shutil.copy(_ROOT / name, target / name)
    return target


def _all_but_compilers(target: Path) -> Path:
    """A directory for the PATH with everything that the system has, but for compilers."""
    target.mkdir()
    for directory in ("/usr/bin", "/bin"):
        for tool in Path(directory).iterdir():
            link = target / tool.name
            if not _COMPILER.search(tool.name) and not link.is_symlink():
                link.symlink_to(tool)
    return target


def _installed(wheel: Path, home: Path, tools: Path) -> Path:
    """The Python of a new environment, with the wheel and the packages that it depends on."""
    venv.create(home, with_pip=False)
    python = home / "bin" / "python"
    options = ["--quiet", "--no-index", "--no-deps", "--disable-pip-version-check"]
    subprocess.run(
        [sys.executable, "-m", "pip", "--python", python, "install", *options, wheel],
        env={"PATH": str(tools), "HOME": str(home)},
        check=True,
    )
    packages = sysconfig.get_path("purelib", vars={"base": str(home)})
    # Editable packages are not reached by this: that would take the files named *.pth in there.
    (Path(packages) / "depended-on.pth").write_text(f"{sysconfig.get_path('purelib')}\n")
    return python


def test_the_sdist_has_what_building_needs_and_nothing_built(released: _Released) -> None:
    with tarfile.open(released.sdist) as packed:
        names = {Path(*Path(name).parts[1:]).as_posix() for name in packed.getnames()}
    assert {"setup.py", "build_support/backend.py", "src/trailmark/kernel/table.h"} <= names
    assert not [name for name in names if name.endswith((".so", ".pyc"))]


def test_the_wheel_is_for_any_linux_of_the_last_ten_years(released: _Released) -> None:
    machine = platform.machine()
    assert re.search(rf"-py3-none-.*manylinux2014_{machine}.*\.whl$", released.wheel.name)
    with zipfile.ZipFile(released.wheel) as packed:
        names = set(packed.namelist())
    page = {"page.html", "uPlot.iife.min.js", "uPlot.LICENSE"}
    expected = {f"trailmark/dashboard/static/{name}" for name in page}
    expected |= {"trailmark/kernel/libkernel.so", "trailmark/py.typed"}
    expected |= {"pyspark_trailmark/__init__.py"}
    assert expected <= names
    theirs = f"trailmark-{_version()}.dist-info/"
    assert {name.split("/")[0] + "/" for name in names} == {
        *("trailmark/", "pyspark_trailmark/", theirs)
    }


def test_it_runs_on_spark_without_a_compiler(released: _Released, tmp_path: Path) -> None:
    compilers = [shutil.which(name, path=str(released.tools)) for name in ("cc", "gcc", "clang")]
    assert compilers == [None] * 3
    (tmp_path / "in").mkdir()
    orders = [f'{{"item": {n % 3}, "price": {n % 3}}}\n' for n in range(60)]
    (tmp_path / "in/orders.json").write_text("".join(orders))
    (tmp_path / "job.py").write_text(_JOB)
    done = released.run(released.python, "job.py", home=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"{_version()} 0 0 1 1 2 2\n"
    command = released.python.with_name("trailmark")
    assert released.run(command, "--version", home=tmp_path).stdout == f"trailmark {_version()}\n"
    assert released.run(command, "verify", "logs", home=tmp_path).returncode == 0


def test_mypy_sees_its_types(released: _Released, tmp_path: Path) -> None:
    (tmp_path / "job.py").write_text(_TYPED)
    options = ["--strict", "--no-incremental", "--python-executable", released.python]
    done = released.run(sys.executable, "-m", "mypy", *options, "job.py", home=tmp_path)
    revealed, wrong, _ = done.stdout.splitlines()
    assert revealed.endswith('note: Revealed type is "trailmark.windows.functions.Function"')
    assert '"count_window" has incompatible type "str"; expected "int"' in wrong


def _version() -> str:
    found = re.search(r'^version = "(.*)"$', (_ROOT / "pyproject.toml").read_text(), re.MULTILINE)
    assert found is not None
    return found[1]
