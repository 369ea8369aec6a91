"""What the query and whoever watches it have to agree on."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

RECOVER_WITHIN = "250 milliseconds"


@dataclass(frozen=True, slots=True)
class Places:
    """Where a run of the query keeps its things; all but the orders are its own. And how long its
    recovery may take."""

    orders: Path
    root: Path
    cache: Path
    recover_within: str

    @property
    def sink(self) -> Path:
        return self.root / "averages"

    @property
    def progress(self) -> Path:
        return self.root / "progress.jsonl"


@contextmanager
def directory(prefix: str, *, within: str | None = None, keep: bool = False) -> Iterator[Path]:
    """A temporary directory that goes away unless it is kept."""
    path = Path(tempfile.mkdtemp(prefix=prefix, dir=within))
    try:
        yield path
    finally:
        if keep:
            print(f"\nWorking directory: {path}")
        else:
            shutil.rmtree(path, ignore_errors=True)
