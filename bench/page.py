"""docs/benchmarks.md: a section for every experiment that has left a raw file, and for no other."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from bench.drawing import drawn_alike, save
from bench.experiment import HOME, Experiment, Raw, load

_HEAD = """\
# Benchmarks

Every table and picture here is made by `python -m bench page` from a raw file in
[benchmarks/](benchmarks/), which holds the machine, versions, settings, the seed and all
repetitions. `make bench` measures anew in less than a quarter of an hour (environments of other
engines are set up once, before that), `make bench-full` more sizes more often. Which of the two a
section comes from is in its last line.

Read ratios, not seconds: whatever is compared ran in turn (A B C, C B A, ...) in one run on one
machine. A value is the median, with the least and the greatest in brackets. Seconds of the papers
were measured on machines of their time and are printed beside ours for the shape of a curve.
"""
_LOOK = {
    "font.size": 11,
    "axes.grid": True,
    "grid.color": "#e4e4e4",
    "axes.axisbelow": True,
    "legend.frameon": False,
}


def write_page(experiments: Sequence[Experiment], home: Path = HOME) -> Path:
    """The page and its pictures, from the raw files that are there."""
    parts = [_HEAD]
    for experiment in experiments:
        raw = load(experiment.NAME, home)
        if raw is not None:
            parts.append(_section(experiment, raw, home))
    page = home.parent / f"{home.name}.md"
    page.write_text("\n".join(parts))
    return page


def _section(experiment: Experiment, raw: Raw, home: Path) -> str:
    with drawn_alike(_LOOK):
        shown = experiment.show(raw)
        pictures = [save(figure, home / name) for name, figure in shown.pictures.items()]
    lines = [f"## {experiment.TITLE}", "", shown.text.strip(), ""]
    for path in pictures:
        lines += [f"![{experiment.TITLE}]({home.name}/{path.name})", ""]
    for what, why in raw.skipped.items():
        lines += [f"Not measured: {what}. {why}", ""]
    return "\n".join([*lines, _origin(raw, home), ""])


def _origin(raw: Raw, home: Path) -> str:
    versions = ", ".join(f"{name} {number}" for name, number in raw.versions.items())
    return (
        f"<sub>[{raw.experiment}.json]({home.name}/{raw.experiment}.json): {raw.measured_at[:10]}, "
        f"{raw.effort}, {raw.took_s:,.0f} s, {len(raw.repetitions)} runs, "
        f"{raw.machine['cores']} cores, {raw.machine['memory_gib']} GiB, load before it "
        f"{raw.machine['load_before']}; {versions}.</sub>"
    )
