"""NEXMark: eight queries over an auction site, on Trailmark, Spark and Flink."""

from __future__ import annotations

from dataclasses import asdict

from bench.experiment import Effort, Measured, Note, Raw, Section, ratios, spread, table
from bench.nexmark.contest import (
    BY_NAME,
    CHECKPOINT_EVERY,
    ENGINES,
    TRAILMARK,
    WARM_UP,
    Contest,
    agree,
)
from bench.nexmark.files import Batches
from bench.nexmark.tables import READS
from bench.peers.peer import installable
from bench.peers.run import HEAP_GIB

NAME = "nexmark"
TITLE = "NEXMark"

_OTHERS = [engine for engine in ENGINES if engine is not TRAILMARK]
_BATCHES = 5
#: Events in a batch; people and auctions are 4 in 50: queries of these two get ten times as many.
_EVENTS, _EVENTS_WITHOUT_BIDS = 200_000, 2_000_000


def _batches(query: str) -> Batches:
    if "bid" in READS[query]:
        return Batches(_EVENTS, _BATCHES)
    return Batches(_EVENTS_WITHOUT_BIDS, _BATCHES, kinds=READS[query])


def measure(effort: Effort, note: Note) -> Measured:
    found, skipped = installable(ENGINES, note)
    for what, why in skipped.items():
        note(f"not measured: {what}. {why}")
    batches = {query: _batches(query) for query in READS}
    contest = Contest(batches, effort.pick(1, 3))
    repetitions = list(contest.run(found, skipped, note))
    settings = {
        "warm_up": WARM_UP,
        "heap_gib": HEAP_GIB,
        "checkpoint_every": CHECKPOINT_EVERY,
        "batches": {query: asdict(each) for query, each in batches.items()},
        "engines": {name: asdict(BY_NAME[name]) for name in found},
    }
    return Measured(settings, next(iter(batches.values())).seed, repetitions, skipped)


def show(raw: Raw) -> Section:
    introduction = _INTRODUCTION.format(
        tolerances="\n".join(
            f"- {engine['label']}: {engine['tolerance']}"
            for engine in raw.settings["engines"].values()
        ),
        **raw.settings,
    )
    return Section(f"{introduction}\n{_table(raw)}\n\n{_QUERIES}\n{_REASONS}")


_INTRODUCTION = """\
An auction site: people join, open auctions and bid, 1 : 3 : 46. Events and queries are written here
from the public descriptions (Tucker, Tufte, Papadimos and Maier, and what Apache Beam and the
NEXMark for Flink made of it), with 10,000 events in a second of event time. Fault tolerance is on:

{tolerances}

All engines have two cores, run two tasks of everything, have {heap_gib} GiB of heap, and write
their results to files, exactly once. Each run is a process of its own. Rows are those of the
streams that a query reads. Rows per second are those of the median batch after the first {warm_up};
Flink has no batches, and is counted from a quarter of its input on. It reads the same rows as CSV,
since its package on PyPI has no Parquet. *Results* are compared row by row between all runs, and on
fewer events with plain Python (`bench/nexmark/plain.py`, where the queries are defined).
"""

_QUERIES = """\
| | what | on Trailmark | on Spark | on Flink |
|---|---|---|---|---|
| q3 | sellers of category 10 in three states, joined with their auctions | `tm.join` | join | \
interval join |
| q4 | average winning bid of each category | `tm.join`, two `tm.aggregate` | join, two aggregates \
| interval join, two window aggregates |
| q5 | auctions with the most bids, 10 s every 2 s | `tm.aggregate`, `tm.apply` | two aggregates, \
the second with a list | window aggregates, window join |
| q6 | average of a seller's last ten winning bids | `tm.join`, `tm.aggregate`, `tm.apply` | join, \
aggregate, `transformWithStateInPandas` | interval join, window aggregate, `OVER` |
| q7 | highest bid, 10 s | two `tm.apply` | aggregate | window top-n |
| q8 | who joins and sells in the same 10 s | `tm.aggregate`, `tm.join` | aggregate, join | window \
aggregates, window join |
| q11 | bids of a user's session, until 10 s of silence | `tm.apply` with timers | \
`session_window` | session window |
| q12 | bids of a user in 10 s | `tm.aggregate` | aggregate | window aggregate |

Where the descriptions leave something open, or an engine could not do it, all do the same:

- q3: an auction opens at most 10 s before or after its seller joins. The original has no bound, and
  Trailmark has no join without one. It loses nothing: nobody here sells for longer than 5 s.
- q4, q6: a bid counts while its auction is open, and an auction when it has expired. q4 averages
  the auctions that expire in the same 10 s: a running average for ever is an update of an earlier
  result, which neither `tm.aggregate` nor Spark's append mode gives.
- q6: no two auctions of a seller expire in the same millisecond, or Flink's `OVER` would take them
  in any order. Spark has no windows of a count of rows: users write them.
- q7: of equal bids the earliest. Rows of the greatest value, ties included (q5), and sessions (q11)
  are operators that users write in Trailmark (`bench/nexmark/operators.py`).
- q12: windows of processing time depend on how fast an engine is, so that no two runs agree. A bid
  has the time at which it arrived in its row instead, and nobody looks at the clock.
"""

_REASONS = """\
Why. q4, q5, q11 and q12 were looked into, by what Spark tells of its state operators and its plans;
the others are what follows from how they are made.

- q4 and Spark: its join looks into RocksDB row by row. For a batch of 196,000 rows it read 1.33
  million times and wrote 0.58 million times; taking rows in and letting them go was 22 s of task
  time, by two tasks, in a batch of 13 s. `tm.join` refers to tuples where they are, in its input
  log, and works on whole columns. q6 has the same join, and in Spark a call of Python for each
  seller besides. q3 and q8 have it on fewer rows: q3 drops four auctions of five and every other
  person before it, q8 all but one auction of a seller and window.
- q5 and Spark: windows that slide make 61,000 states of 184,000 bids, each read three times and
  written twice in RocksDB: 2.2 s of task time in a batch of 2.2 s. Trailmark has them in memory.
- q7, q12 and Spark: its plans aggregate before the shuffle, which leaves a row of each task, window
  and user. Trailmark takes every bid through the shuffle, to Python and into its input log. In
  batches as small as these that does not show in q12: a batch without any row takes Trailmark 0.3
  to 0.4 of the 0.5 s, Spark 0.6 of the 0.8 s. In q7 it does.
- q11 and Spark: sessions are sorted and merged behind the shuffle, so there both move all bids.
- Flink: RocksDB costs it a factor of 1.1 to 4.3 over the hashmap, with the same plans. With the
  state in memory it is faster than Trailmark in six queries of eight. It has no batches to begin
  and commit, no Python, and writes no copy of its input; it does parse text. How much each of these
  is worth was not measured.

Batches are small, and the later ones still get faster, so this is what short runs give.

This is one turn on a machine with other work beside it, most of it during q3 and q4, where Flink
with the hashmap had the least: ratios between 0.7 and 1.4 say little. `python -m bench run --full
nexmark` takes three turns.
"""


def _table(raw: Raw) -> str:
    header = ["", "rows a batch", *(f"{engine.label}, rows/s" for engine in ENGINES)]
    header += [*(f"x {engine.label}" for engine in _OTHERS), "results"]
    return table(header, [_row(raw, query) for query in raw.settings["batches"]])


def _row(raw: Raw, query: str) -> list[str]:
    runs = raw.of(query=query)
    rates = [
        spread(raw.values("rows_per_s", query=query, engine=engine.name)).show(",.0f")
        if raw.of(query=query, engine=engine.name)
        else "-"
        for engine in ENGINES
    ]
    batches = raw.settings["batches"][query]["count"]
    verdict = f"{runs[0]['results']:,}, {'equal' if agree(runs) else 'they differ'}"
    rows = f"{runs[0]['rows'] // batches:,}"
    return [query, rows, *rates, *(_ratio(raw, query, other.name) for other in _OTHERS), verdict]


def _ratio(raw: Raw, query: str, other: str) -> str:
    if not raw.of(query=query, engine=other):
        return "-"
    ours = {"query": query, "engine": TRAILMARK.name}
    return ratios(raw, "rows_per_s", ours, {"query": query, "engine": other}).show()
