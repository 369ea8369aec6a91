"""What the query and whoever watches it have to agree on."""

from __future__ import annotations

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
