"""Who told a process to end before `tm.standby` does so again after it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

_TAKES_SIGTERM = """
#include <signal.h>
static void nothing(int number) { (void)number; }
__attribute__((constructor)) static void take(void) { signal(SIGTERM, nothing); }
"""
_SCRIPT = """
import os, signal
from trailmark.spark.standby import _Terminated
assert signal.getsignal(signal.SIGTERM) is None
with _Terminated() as terminated:
    os.kill(os.getpid(), signal.SIGTERM)
    assert not terminated.is_set
os.kill(os.getpid(), signal.SIGTERM)
print("goes on")
"""


def test_a_handler_that_python_does_not_know_stays(tmp_path: Path) -> None:
    """As of a program that runs Python inside of itself."""
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("needs a C compiler")
    (tmp_path / "takes.c").write_text(_TAKES_SIGTERM)
    library = tmp_path / "takes.so"
    build = [compiler, "-shared", "-fPIC", "-o", str(library), str(tmp_path / "takes.c")]
    subprocess.run(build, check=True)
    environment = os.environ | {"LD_PRELOAD": str(library)}
    command = [sys.executable, "-c", _SCRIPT]
    ran = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stdout) == (0, "goes on\n"), ran.stderr
