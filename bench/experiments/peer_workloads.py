"""The same peers on few ids, single orders, string keys and skewed ids."""

from __future__ import annotations

from bench.experiment import Effort, Measured, Note, Raw, Section
from bench.peers.throughput import STREAMS, measure_streams, picture, tables

NAME = "peer-workloads"
TITLE = "Throughput against other engines, other workloads"

_INTRODUCTION = """\
As above, on other workloads. Only `make bench-full` and `python -m bench run peer-workloads`
measure this.
"""


def measure(effort: Effort, note: Note) -> Measured:
    names = [name for name in STREAMS if name != "uniform"]
    return measure_streams(names, effort.pick(1, 2), not effort.is_quick, note)


def show(raw: Raw) -> Section:
    return Section(f"{_INTRODUCTION}\n{tables(raw)}", {f"{NAME}.svg": picture(raw)})
