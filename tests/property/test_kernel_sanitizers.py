"""The kernel steps outside no buffer and relies on nothing undefined, over random cases.

It is built a second time with the address and undefined-behaviour sanitizers, in a temporary
directory, and stands in for the installed one in a process of its own.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.seeds import seeds

_ROOT = Path(__file__).parents[2]
_FLAGS = [
    *["-std=gnu11", "-O1", "-g", "-fPIC", "-shared", "-ffp-contract=off", "-fno-strict-aliasing"],
    *["-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-fno-omit-frame-pointer"],
]

# Calls the kernel on 100 numbers and says that there are as many as the argument.
_CONTROL = """
import ctypes, sys
import numpy as np
numbers = np.ones(100, dtype=np.uint64)
kernel = ctypes.CDLL(sys.argv[1])
kernel.tm_digest_sum(ctypes.c_void_p(numbers.ctypes.data), ctypes.c_int64(int(sys.argv[2])))
"""


@dataclass(frozen=True)
class Sanitized:
    library: Path
    preload: str

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        environment = os.environ | {
            "LD_PRELOAD": self.preload,
            "ASAN_OPTIONS": "detect_leaks=0",
            # Both of these come from malloc then, where the sanitizer sees them.
            "PYTHONMALLOC": "malloc",
            "ARROW_DEFAULT_MEMORY_POOL": "system",
        }
        return subprocess.run(
            [sys.executable, *arguments],
            cwd=_ROOT,
            env=environment,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )


def _runtime(compiler: str, name: str) -> str | None:
    """Where the compiler keeps a library; it answers with the bare name if it has none."""
    asked = [compiler, f"-print-file-name={name}"]
    found = subprocess.run(asked, capture_output=True, text=True, check=False).stdout.strip()
    return found if os.path.isabs(found) else None


@pytest.fixture(scope="module")
def sanitized(tmp_path_factory: pytest.TempPathFactory) -> Sanitized:
    compiler = shutil.which("gcc")
    if compiler is None:
        pytest.skip("no gcc")
    address = _runtime(compiler, "libasan.so")
    if address is None:
        pytest.skip("gcc comes without the address sanitizer's runtime")
    library = tmp_path_factory.mktemp("kernel") / "libkernel-sanitized.so"
    sources = sorted(str(path) for path in (_ROOT / "src/trailmark/kernel").glob("*.c"))
    build = subprocess.run(
        [compiler, *_FLAGS, *sources, "-o", str(library), "-lm"],
        capture_output=True,
        text=True,
        check=False,
    )
    if build.returncode:
        pytest.skip(f"gcc cannot build with sanitizers: {build.stderr[:500]}")
    # Arrow throws C++ exceptions: their runtime has to be there when the sanitizer starts.
    exceptions = _runtime(compiler, "libstdc++.so.6") or _runtime(compiler, "libstdc++.so")
    made = Sanitized(library, " ".join(filter(None, (address, exceptions))))
    started = made.run("-c", _CONTROL, str(library), "100")
    if started.returncode:
        pytest.skip(f"the sanitizers do not start here: {started.stderr[:500]}")
    return made


def test_the_sanitizers_notice_a_step_outside(sanitized: Sanitized) -> None:
    run = sanitized.run("-c", _CONTROL, str(sanitized.library), "101")
    assert run.returncode != 0
    assert "heap-buffer-overflow" in run.stderr
    assert "tm_digest_sum" in run.stderr


def test_random_cases_give_the_sanitizers_nothing_to_report(sanitized: Sanitized) -> None:
    chosen = seeds(150)
    count = ["--first", str(chosen.start), "--count", str(len(chosen))]
    run = sanitized.run("-m", "tests.support.sanitized", str(sanitized.library), *count)
    reached = run.stdout.splitlines()[-1:] or ["nothing was run"]
    assert run.returncode == 0, f"stopped at {reached[0]}\n{run.stderr[-6000:]}"
    assert reached == ["done"]
