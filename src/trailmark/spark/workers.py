"""Whether Spark's workers have Trailmark: they run a Python of their own."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from importlib import metadata
from typing import Any

from pyspark import cloudpickle
from pyspark.sql import SparkSession

from trailmark.errors import SettingError
from trailmark.spark.internals import driver_directory

#: What a Python that can work says, and one that cannot says why not.
_QUESTION = """
import sys
from importlib import metadata
import trailmark
found = [each.version for each in metadata.distributions(name="trailmark")]
print("Python %d.%d," % sys.version_info[:2], "trailmark", *found[:1])
"""
_PATIENCE_S = 60
#: Those that have given the right answer.
_fine: set[str] = set()


def check_workers(session: SparkSession) -> None:
    """Refuses workers on this machine that could not work.

    What runs on others is not known before a task runs there, which may take long: see `carried`.
    """
    context = getattr(session, "sparkContext", None)
    if context is None or not str(context.master).startswith("local") or not sys.executable:
        return  # a session of Spark Connect has no context here
    python = shutil.which(context.pythonExec, path=os.environ.get("PATH"))
    if python is None and os.sep in context.pythonExec:
        return  # a place that only Spark knows, such as one in an archive that it unpacks
    if python is None:
        raise _useless(f"{context.pythonExec}, which is not to be found")
    if python in _fine or os.path.abspath(python) == os.path.abspath(sys.executable):
        return
    # What this Python is need not be asked: another process of it may lack what was set up here.
    answer, expected = _ask(python, session), _own_answer()
    if answer != expected:
        raise _useless(f"{python} ({answer}), and the driver {sys.executable} ({expected})")
    _fine.add(python)


def _own_answer() -> str:
    found = [each.version for each in metadata.distributions(name="trailmark")]
    major, minor = sys.version_info[:2]
    return " ".join([f"Python {major}.{minor}, trailmark", *found[:1]])


def _ask(python: str, session: SparkSession) -> str:
    """What a Python says of itself, started where and as the workers are."""
    try:
        done = subprocess.run(
            [python, "-c", _QUESTION],
            cwd=driver_directory(session),
            capture_output=True,
            text=True,
            timeout=_PATIENCE_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    said = done.stdout if done.returncode == 0 else done.stderr
    return (said.strip().splitlines() or [f"exit code {done.returncode}"])[-1]


def _useless(what: str) -> SettingError:
    return SettingError(
        f"Spark's workers run {what}.",
        where="PYSPARK_PYTHON",
        fix=f"Set PYSPARK_PYTHON={sys.executable} before the session starts, or in the script: "
        "os.environ['PYSPARK_PYTHON'] = sys.executable",
    )


def check_sendable(user: Any, name: str) -> None:
    """Refuses a user's class, instance or function that cannot be sent to the workers; ``name`` is
    what it is called."""
    reason = _unsendable(user)
    if not reason:
        return
    kinds = (user,) if isinstance(user, type) else (type(user), user)
    found = {
        attribute: _unsendable(value)
        for each in kinds
        for attribute, value in getattr(each, "__dict__", {}).items()
        if not attribute.startswith("__")
    }
    named = [f"{name}.{attribute} ({why})" for attribute, why in found.items() if why]
    raise SettingError(
        f"{name} cannot be sent to Spark's workers: {', '.join(named) or reason}.",
        where="operator",
        fix="Locks, sockets, sessions and the like belong to one process: make them in a method, "
        "where they are needed.",
    )


def _unsendable(thing: Any) -> str:
    """Why something cannot be sent; empty if it can."""
    try:
        cloudpickle.dumps(thing)  # type: ignore[no-untyped-call]
    except Exception as error:  # noqa: BLE001 - objects say in many ways that they cannot be
        return str(error) or type(error).__name__
    return ""


def carried(
    run: Callable[..., Iterator[Any]], plan: object, name: str
) -> Callable[[Any], Iterator[Any]]:
    """The function that Spark sends to the workers, and shows in its plans by this name.

    It can be unpacked without Trailmark, and says in one line if that is missing, or a module of
    the user's.
    """
    packed = cloudpickle.dumps(partial(run, plan))  # type: ignore[no-untyped-call]

    def unpack_and_run(batches: Any) -> Iterator[Any]:
        import pickle
        import sys

        try:
            work = pickle.loads(packed)  # noqa: S301  (packed above; it comes as Spark's own code)
        except (ModuleNotFoundError, AttributeError) as error:
            missing = getattr(error, "name", None) or ""
            if missing.startswith("trailmark."):
                raise
            if missing != "trailmark":
                from trailmark.errors import SettingError

                raise SettingError(
                    f"A worker of Spark cannot unpack the code that it was sent: {error}.",
                    where=f"{name}, {sys.executable}",
                    fix="Give the workers the module as the driver has it: install it there, or "
                    "spark.sparkContext.addPyFile('module.py') before the query starts. Code of "
                    "the script itself is sent along.",
                ) from None
            raise RuntimeError(
                f"A worker of Spark runs {sys.executable}, which has no trailmark. Install it "
                "there, or set PYSPARK_PYTHON to a Python that has it before the session starts."
            ) from None
        return work(batches)  # type: ignore[no-any-return]

    unpack_and_run.__name__ = name
    return unpack_and_run
