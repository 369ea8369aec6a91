"""Compilers may drop a prefetch, as one that has no effect: results do not tell, only time does."""

from __future__ import annotations

import platform
import re
import shutil
import subprocess
from pathlib import Path

import pytest

_KERNEL = Path(__file__).parents[3] / "src/trailmark/kernel"
_INSTRUCTION = {"x86_64": "prefetch", "aarch64": "prfm"}


@pytest.fixture(scope="module")
def functions(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The assembly of each function that finds windows."""
    compiler = shutil.which("cc")
    if compiler is None or platform.machine() not in _INSTRUCTION:
        pytest.skip("no cc, or a processor whose instructions this test does not know")
    target = tmp_path_factory.mktemp("assembly") / "windows.s"
    source = _KERNEL / "windows.c"
    flags = ["-std=gnu11", "-O3", "-fPIC", "-fno-strict-aliasing", "-S"]
    subprocess.run([compiler, *flags, str(source), "-o", str(target)], check=True)
    parts = re.split(r"^(tm_\w+):", target.read_text(), flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


@pytest.mark.parametrize("name", ["tm_disjoint_count", "tm_overlapping_count", "tm_time_pairs"])
def test_finding_windows_fetches_ahead(functions: dict[str, str], name: str) -> None:
    assert _INSTRUCTION[platform.machine()] in functions[name]
