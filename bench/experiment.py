"""An experiment measures, leaves everything it has measured in one file, and is drawn from that.

A raw file holds the machine, versions, settings, the seed and every repetition. Tables and pictures
are made from raw files alone, so nothing is shown that cannot be looked up.
"""

from __future__ import annotations

import json
import os
import platform
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import datetime, timezone
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from statistics import median
from typing import Any, Protocol, TypeVar

from matplotlib.figure import Figure

#: Where raw files and pictures are kept, beside the page that shows them.
HOME = Path("docs/benchmarks")
_PACKAGES = ("pyspark", "pyarrow", "numpy", "pandas")

T = TypeVar("T")
Repetition = dict[str, Any]
Note = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Effort:
    """How much is measured: ``quick`` for `make bench`, else for `make bench-full`."""

    is_quick: bool

    @property
    def name(self) -> str:
        return "quick" if self.is_quick else "full"

    def pick(self, quick: T, full: T) -> T:
        return quick if self.is_quick else full


@dataclass(frozen=True, slots=True)
class Measured:
    """What an experiment returns: ``repetitions`` are raw, a mapping for each run of each variant;
    ``skipped`` says what could not be measured here, and why."""

    settings: Mapping[str, Any]
    seed: int
    repetitions: Sequence[Repetition]
    skipped: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Raw:
    """The file of an experiment."""

    experiment: str
    effort: str
    measured_at: str
    took_s: float
    machine: Mapping[str, Any]
    versions: Mapping[str, str]
    settings: Mapping[str, Any]
    seed: int
    repetitions: Sequence[Repetition]
    skipped: Mapping[str, str]

    def of(self, **wanted: Any) -> list[Repetition]:
        """The repetitions that have these values."""
        return [r for r in self.repetitions if all(r[name] == wanted[name] for name in wanted)]

    def values(self, metric: str, **wanted: Any) -> list[float]:
        return [r[metric] for r in self.of(**wanted)]


@dataclass(frozen=True, slots=True)
class Section:
    """What the page shows of an experiment: Markdown, and pictures by their file names."""

    text: str
    pictures: Mapping[str, Figure] = field(default_factory=dict)


class Experiment(Protocol):
    """A module of `bench.experiments`."""

    NAME: str
    TITLE: str

    def measure(self, effort: Effort, note: Note) -> Measured: ...

    def show(self, raw: Raw) -> Section: ...


def run(experiment: Experiment, effort: Effort, note: Note, home: Path = HOME) -> Path:
    """Measures, and leaves the raw file."""
    began, machine = time.monotonic(), _machine()
    measured = experiment.measure(effort, note)
    raw = Raw(
        experiment=experiment.NAME,
        effort=effort.name,
        measured_at=datetime.now(timezone.utc).isoformat(timespec="seconds"),
        took_s=round(time.monotonic() - began, 1),
        machine=machine,
        versions=_versions(),
        settings=measured.settings,
        seed=measured.seed,
        repetitions=measured.repetitions,
        skipped=measured.skipped,
    )
    home.mkdir(parents=True, exist_ok=True)
    path = home / f"{experiment.NAME}.json"
    path.write_text(_one_line_per_repetition(raw))
    return path


def load(name: str, home: Path = HOME) -> Raw | None:
    """The raw file of an experiment; None if it has not been measured."""
    path = home / f"{name}.json"
    return Raw(**json.loads(path.read_text())) if path.exists() else None


def in_turn(variants: Mapping[str, T], turns: int) -> Iterator[tuple[int, str, T]]:
    """A B C, C B A, A B C ...: whatever changes on the machine meets all of them alike."""
    for turn in range(turns):
        names = list(variants)
        for name in names if turn % 2 == 0 else reversed(names):
            yield turn, name, variants[name]


@dataclass(frozen=True, slots=True)
class Spread:
    """A median, and the least and the greatest value it stands for."""

    middle: float
    least: float
    most: float

    def show(self, format: str = ".2f") -> str:
        if self.least == self.most:
            return f"{self.middle:{format}}"
        return f"{self.middle:{format}} ({self.least:{format}} to {self.most:{format}})"


def spread(values: Sequence[float]) -> Spread:
    return Spread(median(values), min(values), max(values))


def ratios(raw: Raw, metric: str, of: Mapping[str, Any], to: Mapping[str, Any]) -> Spread:
    """A metric of one variant over that of another, turn by turn: neighbours in time."""
    base = {r["turn"]: r[metric] for r in raw.of(**to)}
    return spread([r[metric] / base[r["turn"]] for r in raw.of(**of)])


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table; all columns but the first are aligned to the right."""
    rule = ["---", *["---:"] * (len(header) - 1)]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in [header, rule, *rows])


def _machine() -> dict[str, Any]:
    return {
        "cores": os.cpu_count(),
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30),
        "system": platform.system(),
        "architecture": platform.machine(),
        "load_before": round(os.getloadavg()[0], 2),
    }


def _versions() -> dict[str, str]:
    found = {"python": platform.python_version()}
    for package in _PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = "not installed"
    return found


def _one_line_per_repetition(raw: Raw) -> str:
    """Readable in a diff, and not a line per number."""
    described = asdict(raw)
    repetitions = ",\n  ".join(json.dumps(r) for r in described.pop("repetitions"))
    head = json.dumps(described, indent=1)
    return f'{head[:-2]},\n "repetitions": [\n  {repetitions}\n ]\n}}\n'
