"""Changed files with right checksums, read by everything that reads them; see `tests.fuzz`.

``make fuzz`` does it for an hour, guided by the lines that inputs reach.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.fuzz.hunt import Hunt

#: Those of a process of its own, which takes some to start.
_SECONDS = 30.0


def test_nothing_dies_or_hangs_of_files_whose_checksums_are_right(tmp_path: Path) -> None:
    seed = int(os.environ.get("TRAILMARK_SEED", "0"))
    hunt = Hunt(tmp_path, seed, is_guided=False)
    for finding in hunt.run(_SECONDS, most=1):
        pytest.fail(
            f"{finding.what}\npython -m tests.fuzz {finding.path} tries it again; "
            f"TRAILMARK_SEED={seed} repeats all of it.\n{finding.trace}"
        )


def test_the_trailmark_of_the_python_path_is_fuzzed(tmp_path: Path, other_trailmark: None) -> None:
    findings = Hunt(tmp_path, seed=0, is_guided=False).run(1.0, most=1)
    assert [finding.what for finding in findings] == ["ImportError: the other one"]
