"""An environment for each engine that is compared: made once, then kept under ``.bench/envs``.

Engines pin versions of numpy, pandas and pyarrow that would not go together with the project's own.
The name of an environment holds a hash of what is in it: other requirements, another environment.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

HOME = Path(".bench/envs")
#: The environment that runs the benchmark.
PROJECT = "project"
#: Written last: an environment without it was interrupted, and is made again.
_READY = "ready"
_MINUTES = 20


class NotInstallable(Exception):
    """An engine cannot be had on this machine; the message says why."""


@dataclass(frozen=True, slots=True)
class Requirements:
    """What is installed, and the versions of Python (3.x) its makers publish it for."""

    packages: tuple[str, ...]
    minors: tuple[int, ...]


ENGINES = {
    # Its own requirements pin pyarrow, pandas and numpy.
    "flink": Requirements(("apache-flink==2.3.*",), (11, 12, 10)),
    # pyarrow reads the orders: whole columns at once, rather than a row after the other.
    "bytewax": Requirements(("bytewax==0.21.*", "pyarrow>=17"), (11, 12, 10)),
}


def environment(
    name: str,
    note: Callable[[str], None] = lambda _: None,
    home: Path = HOME,
) -> Path:
    """The interpreter of an engine's environment, which is made if it is not there.

    Raises `NotInstallable` if this machine cannot have it.
    """
    if name == PROJECT:
        return Path(sys.executable)
    wanted = ENGINES[name]
    python = _python_for(name, wanted)
    place = home.absolute() / f"{name}-{_mark(wanted, python)}"
    interpreter = place / "bin" / "python"
    if not (place / _READY).exists():
        note(f"environment of {name}: {', '.join(wanted.packages)} (once)")
        _make(place, python, interpreter, wanted.packages)
    return interpreter


def _make(place: Path, python: Path, interpreter: Path, packages: Sequence[str]) -> None:
    if place.exists():
        shutil.rmtree(place)
    place.parent.mkdir(parents=True, exist_ok=True)
    _step([str(python), "-m", "venv", str(place)])
    _step([str(interpreter), "-m", "pip", "install", "--disable-pip-version-check", *packages])
    (place / _READY).write_text("\n".join(packages) + "\n")


def _step(command: Sequence[str]) -> None:
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=_MINUTES * 60,
        )
    except subprocess.TimeoutExpired:
        raise NotInstallable(f"not installed after {_MINUTES} minutes") from None
    if done.returncode != 0:
        raise NotInstallable(telling_line(done.stdout))


def telling_line(output: str) -> str:
    """The last line that names an error, else the last line."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    errors = [line for line in lines if line.lower().startswith(("error", "fatal"))]
    return (errors or lines or ["it ended without a word"])[-1]


def _python_for(name: str, wanted: Requirements) -> Path:
    """This Python if it fits, since it is known to work; else one that is on the path."""
    if sys.version_info[0] == 3 and sys.version_info[1] in wanted.minors:
        return Path(sys.executable)
    found = (shutil.which(f"python3.{minor}") for minor in wanted.minors)
    for path in found:
        if path is not None:
            return Path(path)
    versions = ", ".join(f"3.{minor}" for minor in sorted(wanted.minors))
    raise NotInstallable(f"{name} needs one of Python {versions}; none is on the path")


def _mark(wanted: Requirements, python: Path) -> str:
    said = "\n".join([*sorted(wanted.packages), str(python)])
    return sha256(said.encode()).hexdigest()[:12]
