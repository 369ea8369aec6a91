"""Runs whatever fetches something that only tests need."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

_SECONDS = 600


def why_it_fails(
    command: Sequence[str | Path],
    *,
    cwd: Path | None = None,
    environment: Mapping[str, str] | None = None,
) -> str:
    """Runs a command that says nothing if it succeeds; returns its last words if it does not."""
    try:
        done = subprocess.run(
            command,
            check=False,
            capture_output=True,
            text=True,
            timeout=_SECONDS,
            cwd=cwd,
            env={**os.environ, **(environment or {})},
        )
    except subprocess.TimeoutExpired:
        return "it takes too long"
    said = (done.stderr.strip() or done.stdout.strip()).splitlines()
    return (said or ["it failed"])[-1].strip() if done.returncode else ""
