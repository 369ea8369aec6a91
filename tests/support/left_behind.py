"""Half-written files of processes that were killed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from trailmark.log.storage import temporaries


def dead_process() -> int:
    """The number of a process that has ended."""
    child = subprocess.Popen([sys.executable, "-c", ""])
    child.wait()
    return child.pid


def left_behind(directory: Path, process: int, host: str | None = None) -> str:
    """The name of a file that this process was writing."""
    name = f".a.seg.{host or temporaries._host()}.{process}.{'0' * 15}{process % 10}.tmp"
    directory.mkdir(parents=True, exist_ok=True)
    (directory / name).write_bytes(b"half")
    return name
