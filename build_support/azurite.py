"""Gets an emulator of Azure's object store for tests, where that may be: from npm, below ``.venv``.

Where there is no npm, or it cannot fetch it, the tests that need it are skipped, and say so.
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

_PACKAGE = "azurite@3.35.0"
_SECONDS = 600
_PLACE = Path(__file__).parents[1] / ".venv" / "azurite"
PROGRAM = _PLACE / "node_modules" / ".bin" / "azurite-blob"


def why_not() -> str:
    """Installs it if it is missing; returns why that cannot be, or nothing if it is there."""
    if PROGRAM.exists():
        return ""
    if shutil.which("npm") is None:
        return "there is no npm"
    quiet = ["--no-fund", "--no-audit", "--no-save", "--loglevel=error"]
    try:
        done = subprocess.run(
            ["npm", "install", *quiet, "--prefix", _PLACE, _PACKAGE],
            check=False,
            capture_output=True,
            text=True,
            timeout=_SECONDS,
        )
    except subprocess.TimeoutExpired:
        return "npm install takes too long"
    if done.returncode != 0:
        reason = (done.stderr.strip().splitlines() or ["it failed"])[-1]
        return f"npm install: {reason}"
    return ""


if __name__ == "__main__":
    reason = why_not()
    if reason:
        print(f"no Azurite, so az:// is not tested: {reason}")
