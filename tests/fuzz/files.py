"""Files of a directory, as a mapping of names to bytes."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path


def read_files(path: Path) -> dict[str, bytes]:
    found = sorted(each for each in path.rglob("*") if each.is_file())
    return {str(each.relative_to(path)): each.read_bytes() for each in found}


def write_files(path: Path, files: Mapping[str, bytes]) -> None:
    for name, content in files.items():
        where = path / name
        where.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        where.write_bytes(content)


@contextmanager
def in_directory() -> Iterator[Path]:
    """A directory that is gone afterwards."""
    fast = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    path = Path(tempfile.mkdtemp(prefix="trailmark-fuzz-", dir=fast))
    try:
        yield path
    finally:
        shutil.rmtree(path)
