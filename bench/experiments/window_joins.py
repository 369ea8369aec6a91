"""What checkpoints cost a join with the last tuples of one side."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa

from bench.experiment import Effort, Measured, Note, Raw, Section, ratios, spread, table
from bench.lanes import Lane, feed_all, lanes
from bench.one_core import one_core
from trailmark.checkpoint.policy import (
    Continuous,
    FullSnapshot,
    Incremental,
    NoCheckpoint,
    Policy,
)
from trailmark.log import PortRows
from trailmark.operators.join import Join
from trailmark.windows.last_tuples import LastTuples

NAME = "window-joins"
TITLE = "Joins with the last tuples"

#: Tuples of each side in a batch.
TUPLES = 4096
_SEED = 47
_NONE, _OBJECTIVE = "no checkpoint", "1 second"
#: Tuples that a right tuple is paired with, on the average.
_PARTNERS = 6
_SCHEMA = pa.schema([("key", pa.int32()), ("value", pa.int64())])


@dataclass(frozen=True, slots=True)
class Shape:
    """A window on the left side and none on the right, as in the paper; ``keys`` of either side,
    ``zipf`` if some come far more often than others; what the paper's join gave, in tuples/s; the
    least and the greatest of its groups."""

    window: LastTuples
    keys: tuple[int, int]
    zipf: bool = False
    paper: float | None = None
    groups: tuple[int, int] = (512, 4096)


SHAPES = {
    "last 8,192": Shape(LastTuples(8192), (8192 // _PARTNERS,) * 2, paper=25451.04),
    "last 32,768": Shape(LastTuples(32768), (32768 // _PARTNERS,) * 2, paper=25643.36),
    "last 131,072": Shape(LastTuples(131072), (131072 // _PARTNERS,) * 2, paper=13062.59),
    "50 times last 1,024": Shape(
        LastTuples(1024, per_key=True), (50, 600), paper=75856.67, groups=(32, 256)
    ),
    "the same, Zipf": Shape(LastTuples(1024, per_key=True), (50, 600), zipf=True, groups=(32, 256)),
}


def _policies(shape: Shape) -> dict[str, Policy]:
    """The paper's second was about one batch of ours, in tuples."""
    return {
        _NONE: NoCheckpoint(),
        f"within {_OBJECTIVE}": Continuous.within(_OBJECTIVE),
        **{
            f"groups of {size:,}, every {'batch' if every == 1 else f'{every} batches'}": (
                Incremental(every, size)
            )
            for every in (1, 10)
            for size in shape.groups
        },
        f"groups of {shape.groups[0]:,}, every {_OBJECTIVE}": (
            Incremental(_OBJECTIVE, shape.groups[0])
        ),
        "everything, every batch": FullSnapshot(1),
        "everything, every 10 batches": FullSnapshot(10),
    }


def _join(shape: Shape, policy: Policy) -> Join:
    return Join(
        _SCHEMA,
        _SCHEMA,
        on="key",
        windows=(shape.window, LastTuples(0)),
        group_size=policy.writes_groups_of,
    )


def _batch(rng: np.random.Generator, shape: Shape) -> PortRows:
    sides = []
    for keys in shape.keys:
        if shape.zipf:
            chance = 1 / np.arange(1, keys + 1)
            drawn = rng.choice(keys, TUPLES, p=chance / chance.sum())
        else:
            drawn = rng.integers(0, keys, TUPLES)
        values = rng.integers(0, 1 << 40, TUPLES)
        sides.append(pa.record_batch([drawn.astype(np.int32), values], schema=_SCHEMA))
    return PortRows(tuple(sides), rng.permutation(np.repeat(np.arange(2), TUPLES)).astype(np.uint8))


def measure(effort: Effort, note: Note) -> Measured:
    turns, most = effort.pick((3, 40), (5, 200))
    repetitions: list[dict[str, Any]] = []
    for name, shape in SHAPES.items():
        policies = _policies(shape)
        # Uneven keys make far more pairs.
        batches = most // 3 if shape.zipf else most
        for turn in range(turns):
            note(f"{name}, {batches} batches, turn {turn + 1}")
            rng = np.random.default_rng((_SEED, turn))
            with one_core(), lanes(policies, partial(_join, shape)) as opened:
                worst = dict.fromkeys(policies, 0)
                for batch in range(batches):
                    feed_all(opened, batch, _batch(rng, shape))
                    for lane in opened:
                        predicted = lane.run.report.account.predicted_us
                        worst[lane.name] = max(worst[lane.name], predicted)
                assert len({lane.results for lane in opened}) == 1, "the same results"
                repetitions += [
                    {"shape": name, "turn": turn, **_describe(lane, worst[lane.name])}
                    for lane in opened
                ]
    settings = {"tuples_per_batch_and_side": TUPLES, "batches": most, "objective": _OBJECTIVE}
    return Measured(settings, _SEED, repetitions)


def _describe(lane: Lane, worst_us: int) -> dict[str, Any]:
    seconds = lane.ends[-1]
    return {
        "policy": lane.name,
        "seconds": round(seconds, 6),
        "results": lane.results,
        "footprints": lane.opened + lane.checked,
        "results_per_s": round(lane.results / seconds, 1),
        "longest_predicted_ms": round(worst_us / 1000, 1),
    }


def show(raw: Raw) -> Section:
    rows = []
    for name, shape in SHAPES.items():
        for policy in _policies(shape):
            found, base = {"shape": name, "policy": policy}, {"shape": name, "policy": _NONE}
            rate = spread(raw.values("results_per_s", **found)).middle
            rows.append(
                [
                    f"{name}, {policy}",
                    f"{rate / 1000:,.0f}",
                    "" if shape.paper is None else f"{rate / shape.paper:,.0f}",
                    ratios(raw, "seconds", found, base).show(".3f"),
                    f"{spread(raw.values('footprints', **found)).middle:,.0f}",
                    f"{spread(raw.values('longest_predicted_ms', **found)).most:,.0f}",
                ]
            )
    header = [
        "",
        "thousand results/s",
        "x paper",
        "time x no checkpoint",
        "footprints",
        "longest recovery predicted, ms",
    ]
    text = f"""\
After section 5.2 of *Language-Level Checkpointing Support for Stream Processing Applications* by
Jacques-Silva, Gedik, Andrade and Wu: the left side has a window, the right side none, so that a
right tuple is paired with the window and forgotten. One core, without Spark, synced logs, batches
of {raw.settings["tuples_per_batch_and_side"]:,} tuples a side. In a window for all keys, a right
tuple has about {_PARTNERS} partners. With 50 windows of 1,024 tuples, one right tuple in twelve has
a key that is among them, and then 1,024 partners.

{table(header, rows)}

The paper's incremental checkpoints, groups of tuples that are written when they have changed, cost
it from under 1 % to over 5 %, once in a second or in ten. Its second had about 9,350 tuples, which
is about one batch here: so groups that are written every batch and every 10 batches are written as
often as there, by tuples; by the clock, that is some fifty times as often. `Incremental` writes
each tuple about once more than the input log does, and that is what it costs. By default nothing is
written twice: a tuple that waits is in the input log already, and a footprint says only where.

What `Continuous.within` costs is {" to ".join(f"{each:.3f}" for each in _costs(raw))} x the time
without, in the median of {len(raw.of(shape="last 8,192", policy=_NONE))} turns; at most 1.03 was
asked for. How far the turns lie apart is in brackets: where that is more than a difference, there
is none to speak of.

The recoveries in the last column are predicted too high. Before its first recovery a bucket takes a
replay to cost what a live batch does, and a replay of an inner join makes no pairs; and all records
of the output log count alike, though of the results in it a recovery reads the bytes alone.
"""
    return Section(text)


def _costs(raw: Raw) -> tuple[float, float]:
    """The least and the greatest cost of an objective, of all shapes."""
    policy = f"within {_OBJECTIVE}"
    found = [
        ratios(
            raw, "seconds", {"shape": name, "policy": policy}, {"shape": name, "policy": _NONE}
        ).middle
        for name in SHAPES
    ]
    return min(found), max(found)
