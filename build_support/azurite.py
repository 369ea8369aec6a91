"""Gets an emulator of Azure's object store for tests, where that may be: from npm, below ``.venv``.

Where there is no npm, or it cannot fetch it, the tests that need it are skipped, and say so.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from build_support.fetching import why_it_fails

_PACKAGE = "azurite@3.35.0"
_PLACE = Path(__file__).parents[1] / ".venv" / "azurite"
PROGRAM = _PLACE / "node_modules" / ".bin" / "azurite-blob"


def why_not() -> str:
    """Installs it if it is missing; returns why that cannot be, or nothing if it is there."""
    if PROGRAM.exists():
        return ""
    if shutil.which("npm") is None:
        return "there is no npm"
    quiet = ["--no-fund", "--no-audit", "--no-save", "--loglevel=error"]
    failure = why_it_fails(["npm", "install", *quiet, "--prefix", _PLACE, _PACKAGE])
    return failure and f"npm install: {failure}"


if __name__ == "__main__":
    reason = why_not()
    if reason:
        print(f"no Azurite, so az:// is not tested: {reason}")
