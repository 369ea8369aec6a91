"""Trailmark and its peers on 100,000 ids with windows of 10."""

from __future__ import annotations

from bench.experiment import Effort, Measured, Note, Raw, Section
from bench.peers.throughput import introduction, measure_streams, picture, tables

NAME = "peers"
TITLE = "Throughput against other engines"


def measure(effort: Effort, note: Note) -> Measured:
    return measure_streams(["uniform"], effort.pick(2, 3), not effort.is_quick, note)


def show(raw: Raw) -> Section:
    return Section(f"{introduction(raw)}\n{tables(raw)}", {f"{NAME}.svg": picture(raw)})
