"""The words and tables of the profile."""

from __future__ import annotations

from statistics import fmean

from bench.experiment import Raw, spread, table
from bench.profiling import parts

_HOW = """\
{workloads}, on Spark `local[2]` with {buckets} buckets, a synced log, `{policy}`. Measured by
`make profile`.

Times outside of tasks, and of tasks as a whole, are Spark's own (`durationMs` of the query's
progress, and its event log, to the millisecond). In the Python workers the steps of a batch are
wrapped by timers that count every moment once, for the innermost step. The buckets work side by
side on two cores: the parts of a task are the mean over the buckets, and what a stage took beyond
that is *waiting for the slower bucket*. While the input log is written in the background, the task
goes on; where it had to wait for that, the time counts as what the background did then. Values are
means over all batches that count, so that the parts add up to the whole."""


def describe(raw: Raw) -> str:
    words = _HOW.format(
        workloads="; ".join(raw.settings["workloads"].values()),
        buckets=raw.settings["buckets"],
        policy=raw.settings["policy"],
    )
    return "\n\n".join([words, profile_table(raw), _background(raw)])


def profile_table(raw: Raw) -> str:
    """Milliseconds of each part, and its share of the batch."""
    names = list(raw.settings["workloads"])
    header = [""]
    for name in names:
        header += [f"{name}, ms", "share"]
    rows = [[part, *_cells(raw, names, [part])] for part in parts.ALL]
    rows.append(["**Trailmark in the worker**", *_cells(raw, names, parts.OWN)])
    rows.append(["**the whole batch**", *_cells(raw, names, parts.ALL)])
    return table(header, rows)


def _cells(raw: Raw, names: list[str], chosen: list[str] | tuple[str, ...]) -> list[str]:
    cells = []
    for name in names:
        value = sum(mean_ms(raw, name, part) for part in chosen)
        cells += [f"{value:,.1f}", f"{value / mean_ms(raw, name, 'total_ms'):.1%}"]
    return cells


def mean_ms(raw: Raw, workload: str, part: str) -> float:
    return fmean(raw.values(part, workload=workload))


def _background(raw: Raw) -> str:
    said = [
        f"{mean_ms(raw, name, 'in_background_ms'):,.1f} ms with {name}"
        for name in raw.settings["workloads"]
    ]
    totals = [
        f"{spread(raw.values('total_ms', workload=name)).show(',.0f')} ms with {name}"
        for name in raw.settings["workloads"]
    ]
    return (
        f"Writing the input log takes a thread in the background {' and '.join(said)}, beside the "
        f"parts above. The median of a whole batch is {' and '.join(totals)}."
    )
