"""The page as users start it: a process of its own, found by the address it prints."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_COMMAND = Path(sys.executable).with_name("trailmark")


@contextmanager
def served(
    *arguments: object, command: str = "page", interval: str = "0.3", beside: Path | None = None
) -> Iterator[str]:
    """The address of a page, or of metrics, while it is served; paths may begin at ``beside``."""
    process = subprocess.Popen(
        [_COMMAND, command, *map(str, arguments), "--port", "0", "--interval", interval],
        stdout=subprocess.PIPE,
        text=True,
        cwd=beside,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    )
    try:
        assert process.stdout is not None
        found = re.search(r"http://\S+", process.stdout.readline())
        assert found is not None, "it did not say where it is"
        yield found[0]
    finally:
        process.kill()
        process.wait(60)
        assert process.stdout is not None
        process.stdout.close()
