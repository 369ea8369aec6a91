"""Part of the tests on Spark, on every version of it that Trailmark is for.

``python -m tests.versions`` makes an environment for each below ``.venv-versions``: a Python, the
newest release of that version of PySpark, and the wheel that would be released. The tests of
`SUBSET` run there one environment after another. A version that fails does not hide the others; a
table at the end says what came of all of them.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from xml.etree import ElementTree

_ROOT = Path(__file__).parents[1]
_HOME = _ROOT / ".venv-versions"

#: What runs on every version, by what it is about. A test that needs a later one is skipped there,
#: and says so (see `tests.support.spark_versions`).
SUBSET = {
    "operator": (
        "tests/spark/test_aggregate.py",
        "tests/spark/test_composition.py",
        "tests/spark/test_join.py",
        "tests/spark/test_union.py",
    ),
    "source and sink": (
        "tests/spark/test_source_columns.py",
        "tests/spark/test_source_streaming.py",
    ),
    "restart": ("tests/spark/test_operate.py", "tests/spark/test_ticks.py"),
    "kill": ("tests/spark/test_worker_kills.py",),
    "what Spark has no public name for": (
        "tests/spark/test_internals.py",
        "tests/spark/test_listener.py",
    ),
    "Spark Connect": ("tests/spark/test_connect.py",),
}

#: What tests need beside the wheel.
_TOOLS = ("hypothesis", "pytest", "pytest-xdist")


@dataclass(frozen=True, slots=True)
class Version:
    """Which Spark, on which Python, with which pandas."""

    spark: str
    python: str
    pandas: str = "2"

    @property
    def name(self) -> str:
        return f"{self.spark}-py{self.python}-pandas{self.pandas}"

    @property
    def home(self) -> Path:
        return _HOME / self.name

    @property
    def interpreter(self) -> Path:
        return self.home / "bin" / "python"


#: Every Spark, every Python and both kinds of pandas at least once. `make test` has Spark 4.3.
VERSIONS = (
    Version("4.0", "3.10"),
    Version("4.1", "3.12"),
    Version("4.2", "3.11"),
    Version("4.3", "3.13", pandas="3"),
)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of a version: what was installed, and how many tests passed; or what went wrong."""

    version: Version
    installed: dict[str, str]
    passed: int = 0
    skipped: int = 0
    failed: int = 0
    minutes: float = 0.0
    trouble: str = ""

    @property
    def is_fine(self) -> bool:
        return not self.trouble and not self.failed and self.passed > 0


class CannotBeMade(Exception):
    """An environment cannot be had, for a reason that is told."""


def try_version(version: Version, wheel: Path, workers: str) -> Outcome:
    """Makes an environment if there is none, and runs the tests there."""
    installed: dict[str, str] = {}
    try:
        make_environment(version, wheel)
        installed = _installed(version)
        return _run_tests(version, installed, workers)
    except CannotBeMade as trouble:
        return Outcome(version, installed, trouble=str(trouble))


def make_environment(version: Version, wheel: Path) -> None:
    """An environment with the newest release of a version of PySpark, and this Trailmark."""
    if not version.interpreter.exists():
        shutil.rmtree(version.home, ignore_errors=True)
        base = find_python(version.python)
        if base is None:
            raise CannotBeMade(f"there is no Python {version.python} on this machine")
        _checked([base, "-m", "venv", "--without-pip", version.home])
    spark = f"pyspark[connect]=={version.spark}.*"
    _install(version, "--upgrade", spark, *_TOOLS, f"{wheel}")
    _install(version, "--force-reinstall", "--no-deps", f"{wheel}")
    # Trailmark asks for pandas before 3, because PySpark warns of it.
    _install(version, "--upgrade", "--no-deps", f"pandas=={version.pandas}.*")
    archive = version.home / "spark" / "classes.jsa"
    (described,) = version.home.glob("lib/*/site-packages/pyspark-*.dist-info/METADATA")
    if not archive.exists() or archive.stat().st_mtime < described.stat().st_mtime:
        _checked([version.interpreter, "-m", "tests.support.spark_java"], env=environment(version))


def find_python(version: str) -> Path | None:
    """An interpreter of this version that runs: this one, on the PATH, or among those of pyenv."""
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"), "versions")
    found = [sys.executable, shutil.which(f"python{version}")]
    found += sorted(map(str, pyenv.glob(f"{version}.*/bin/python")), reverse=True)
    ask = "import sys; print('%d.%d' % sys.version_info[:2])"
    for candidate in filter(None, found):
        done = subprocess.run(
            [candidate, "-c", ask], capture_output=True, text=True, check=False
        )  # shims of pyenv are on the PATH and run nothing
        if done.returncode == 0 and done.stdout.strip() == version:
            return Path(candidate)
    return None


def environment(version: Version) -> dict[str, str]:
    """For what runs in an environment: nothing of another Trailmark."""
    ours = {name: text for name, text in os.environ.items() if name != "PYTHONPATH"}
    path = os.pathsep.join([str(version.interpreter.parent), ours.get("PATH", os.defpath)])
    return {**ours, "PATH": path, "PYSPARK_PYTHON": str(version.interpreter)}


def _install(version: Version, *what: str) -> None:
    options = ["--quiet", "--disable-pip-version-check", "--no-warn-conflicts"]
    pip = [sys.executable, "-m", "pip", "--python", str(version.interpreter), "install"]
    _checked([*pip, *options, *what])


def _checked(command: Sequence[str | Path], env: dict[str, str] | None = None) -> str:
    done = subprocess.run(
        command,
        cwd=_ROOT,
        env=env,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        said = [line for line in done.stdout.splitlines() if line.strip()]
        raise CannotBeMade((said or [f"exit code {done.returncode}"])[-1])
    return done.stdout


_ASK = """
import json, platform
from importlib import metadata
import trailmark
found = {name: metadata.version(name) for name in ("pyspark", "pandas", "pyarrow", "numpy")}
print(json.dumps({"Python": platform.python_version(), **found, "where": trailmark.__file__}))
"""


def _installed(version: Version) -> dict[str, str]:
    said = _checked([version.interpreter, "-c", _ASK], env=environment(version))
    found: dict[str, str] = json.loads(said)
    where = found.pop("where")
    if not Path(where).is_relative_to(version.home):
        raise CannotBeMade(f"it would test another Trailmark: {where}")
    return found


def _run_tests(version: Version, installed: dict[str, str], workers: str) -> Outcome:
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as directory:
        report = Path(directory, "report.xml")
        pytest = [str(version.interpreter), "-m", "pytest", *_options(version, workers)]
        done = subprocess.run(
            [*pytest, f"--junitxml={report}", *chain.from_iterable(SUBSET.values())],
            cwd=_ROOT,
            env=environment(version),
            check=False,
        )
        minutes = (time.monotonic() - began) / 60
        if not report.exists():
            trouble = f"pytest ended with exit code {done.returncode}"
            return Outcome(version, installed, minutes=minutes, trouble=trouble)
        suite = next(ElementTree.parse(report).iter("testsuite"))
    count = {name: int(suite.attrib[name]) for name in ("tests", "skipped", "failures", "errors")}
    failed = count["failures"] + count["errors"]
    passed = count["tests"] - count["skipped"] - failed
    return Outcome(version, installed, passed, count["skipped"], failed, minutes)


def _options(version: Version, workers: str) -> Iterator[str]:
    yield from ("--quiet", "-p", "no:cacheprovider", "--numprocesses", workers)
    yield from ("--dist", "loadgroup", "--no-loadscope-reorder")
    # Warnings are errors, and earlier versions of PySpark leave sockets to the garbage collector.
    yield from ("-W", "ignore:unclosed <socket:ResourceWarning")
    if version.pandas != "2":
        yield from ("-W", "ignore:PySpark does not yet fully support pandas:FutureWarning")


def build_wheel(directory: Path) -> Path:
    """The wheel for this machine, as it would be released."""
    script = [sys.executable, "build_support/release.py", str(directory)]
    _checked([*script, "--machine", platform.machine()])
    (wheel,) = directory.glob("*.whl")
    return wheel


def table(outcomes: Sequence[Outcome]) -> Iterator[str]:
    """What came of all versions, a line each."""
    names = ("pyspark", "Python", "pandas", "pyarrow", "numpy")
    yield "".join(f"{name:<10}" for name in names) + "passed  skipped  failed  minutes  disk"
    for each in outcomes:
        have = {"pyspark": each.version.spark, "Python": each.version.python, **each.installed}
        line = "".join(f"{have.get(name, '?'):<10}" for name in names)
        line += f"{each.passed:6}  {each.skipped:7}  {each.failed:6}  {each.minutes:7.1f}"
        yield f"{line}  {_gigabytes(each.version.home):.1f} GB  {each.trouble}".rstrip()


def _gigabytes(directory: Path) -> float:
    return sum(path.lstat().st_size for path in directory.rglob("*")) / 1e9


def main(arguments: Sequence[str] | None = None) -> int:
    known = {version.spark: version for version in VERSIONS}
    parser = argparse.ArgumentParser(prog="python -m tests.versions", description=__doc__)
    parser.add_argument("spark", nargs="*", choices=[*known, []], help="only these versions")
    parser.add_argument("--workers", default="2", help="tests at a time")
    options = parser.parse_args(arguments)
    chosen = [known[name] for name in options.spark or known]
    with tempfile.TemporaryDirectory() as directory:
        wheel = build_wheel(Path(directory))
        outcomes = []
        for version in chosen:
            print(f"--- Spark {version.spark} on Python {version.python}", flush=True)
            outcomes.append(try_version(version, wheel, options.workers))
    print(*table(outcomes), sep="\n")
    wrong = [each.version.spark for each in outcomes if not each.is_fine]
    print(f"FAILED on Spark {', '.join(wrong)}" if wrong else "all versions passed")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
