"""Hosts whose clocks are wrong: a library between their processes and the system tells another time
of day to Python and to JVMs."""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from tests.support.network import LinkedHost

_SOURCE = Path(__file__).with_name("skewed_clock.c")


def wrong_clock(directory: Path) -> Path:
    """The library, built here; skips the test where there is no compiler."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("no C compiler to build the library that tells another time")
    library = directory / "skewed_clock.so"
    options = ("-O1", "-shared", "-fPIC", "-Wall", "-Wextra", "-Werror")
    subprocess.run([compiler, *options, "-o", str(library), str(_SOURCE), "-ldl"], check=True)
    return library


def ahead(host: LinkedHost, seconds: int, library: Path) -> LinkedHost:
    """The host with a clock that is so far ahead, or behind where the number is negative."""
    words = ("env", f"LD_PRELOAD={library}", f"CLOCK_AHEAD_S={seconds}")
    return replace(host, start=(*host.start, *words))
