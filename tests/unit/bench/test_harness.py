"""Benchmarks show what they have measured, and nothing else."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from bench.check import ALLOWED_LOSS, Compared
from bench.experiment import (
    HOME,
    Effort,
    Measured,
    Note,
    Raw,
    Section,
    in_turn,
    load,
    ratios,
    run,
    spread,
)
from bench.experiments import ALL
from bench.page import write_page

QUICK = Effort(is_quick=True)


class _Counting:
    """Two variants, one twice as slow as the other."""

    NAME = "counting"
    TITLE = "Counting"

    def measure(self, effort: Effort, note: Note) -> Measured:
        runs = [
            {"turn": turn, "variant": name, "seconds": seconds * (turn + 1)}
            for turn, name, seconds in in_turn({"fast": 1.0, "slow": 2.0}, 3)
        ]
        return Measured({"size": effort.pick(1, 10)}, 7, runs, {"a third": "It is not installed."})

    def show(self, raw: Raw) -> Section:
        found = ratios(raw, "seconds", {"variant": "slow"}, {"variant": "fast"})
        return Section(f"slow takes {found.show()}")


def _ignore(_: str) -> None:
    pass


def test_a_raw_file_holds_every_run_and_what_it_was_made_with(tmp_path: Path) -> None:
    run(_Counting(), QUICK, _ignore, tmp_path)
    raw = load("counting", tmp_path)
    assert raw is not None
    assert [(r["turn"], r["variant"]) for r in raw.repetitions] == [
        (0, "fast"),
        (0, "slow"),
        (1, "slow"),
        (1, "fast"),
        (2, "fast"),
        (2, "slow"),
    ]
    assert raw.settings == {"size": 1}
    assert raw.seed == 7
    assert raw.effort == "quick"
    assert {"cores", "memory_gib"} <= set(raw.machine)
    assert {"python", "pyspark", "numpy"} <= set(raw.versions)


def test_an_experiment_without_a_raw_file_is_not_shown(tmp_path: Path) -> None:
    home = tmp_path / "benchmarks"
    assert "## Counting" not in write_page([_Counting()], home).read_text()
    run(_Counting(), QUICK, _ignore, home)
    page = write_page([_Counting()], home).read_text()
    assert "## Counting" in page
    assert "Not measured: a third. It is not installed." in page


def test_runs_are_compared_with_those_of_the_same_turn(tmp_path: Path) -> None:
    """All seconds differ from turn to turn, as on a machine that others use; the ratio does not."""
    run(_Counting(), QUICK, _ignore, tmp_path)
    raw = load("counting", tmp_path)
    assert raw is not None
    found = ratios(raw, "seconds", {"variant": "slow"}, {"variant": "fast"})
    assert (found.least, found.middle, found.most) == (2, 2, 2)


def test_the_page_in_the_docs_is_what_its_raw_files_give(tmp_path: Path) -> None:
    home = tmp_path / HOME.name
    shutil.copytree(HOME, home)
    made = write_page(ALL, home)
    assert made.read_text() == HOME.with_suffix(".md").read_text()
    for picture in HOME.glob("*.svg"):
        assert (home / picture.name).exists()
        assert picture.name in made.read_text()


@pytest.mark.parametrize("experiment", ALL, ids=lambda experiment: experiment.NAME)
def test_every_experiment_has_left_a_raw_file(experiment: _Counting) -> None:
    assert load(experiment.NAME) is not None


def test_a_ratio_is_lost_only_beyond_what_is_allowed() -> None:
    def compared(now: float) -> Compared:
        return Compared("a / b", spread([now]), baseline=1.0)

    assert not compared(0.5).is_lost
    assert not compared(1 + ALLOWED_LOSS).is_lost
    assert compared(1.01 + ALLOWED_LOSS).is_lost
