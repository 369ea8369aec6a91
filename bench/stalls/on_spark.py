"""The same failures on Spark, with three processes that write."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path

from bench.experiment import Effort, Note, Raw, Repetition, Section, table
from bench.session import start_session
from bench.stalls.live import SETTINGS, STREAMS, Found, Trial, try_failure
from bench.stalls.part import BOUND_S, CHOICES, RATE, Choice, named

_WHAT = "spark"
_FAILURES_S = ((2, 15), (2, 5, 10, 15, 30, 60))
#: Spark compiles its own code in the first.
_WARM_UP = Trial(RATE, 3, before_s=5)


def measure(effort: Effort, note: Note) -> list[Repetition]:
    found = []
    spark = start_session(settings=SETTINGS)
    with tempfile.TemporaryDirectory(prefix="trailmark-bench-") as folder:
        try_failure(spark, Path(folder) / "warm-up", _WARM_UP)
        for choice in CHOICES:
            for failure_s in effort.pick(*_FAILURES_S):
                note(f"on Spark, {named(choice)}: a failure of {failure_s} s")
                trial = Trial(RATE, failure_s, choice)
                place = Path(folder) / f"{'-'.join(choice)}-{failure_s}"
                found.append(repetition(_WHAT, trial, try_failure(spark, place, trial)))
    spark.stop()
    return found


def repetition(what: str, trial: Trial, found: Found) -> Repetition:
    """What is kept of a run."""
    return {
        "what": what,
        "rate": trial.rate,
        "failure_s": trial.failure_s,
        "bound_s": trial.within_s,
        "on_failure": trial.choice[0],
        "on_correction": trial.choice[1],
        "longest_s": round(found.during.longest_s, 3),
        "p999_s": round(found.during.quantile_s(0.999), 3),
        "within": round(found.during.share_within(trial.within_s), 6),
        "before_longest_s": round(found.before.longest_s, 3),
        "tentative_results": found.tentative_results,
        "corrected_s": round(found.corrected_s, 3),
        "batches": found.batches,
        "by_second": [[second, round(longest_s, 2)] for second, longest_s in found.by_second],
    }


def show(raw: Raw) -> Section | None:
    measured = raw.of(what=_WHAT)
    if not measured:
        return None
    lengths_s = sorted({one["failure_s"] for one in measured})
    header = ["", *(f"{length_s} s" for length_s in lengths_s)]
    before_s = max(one["before_longest_s"] for one in measured)
    return Section(
        f"""\
### On Spark

{len(STREAMS)} processes write {RATE:,} tuples a second in plain Python, ten commits a second each;
one of them is silent for a while, and then commits all that it missed at once. One query on Spark
merges and counts. A tuple is answered when Spark has committed the batch that took it in: from its
commit to its stream until the file in Spark's commit log. Those that the silent stream missed are
no new ones; they come with the correction.

The longest that a new tuple waited, and the part that was answered within {BOUND_S} seconds, from
the beginning of the failure until everything was replaced (before it, {before_s:.1f} s at most):

{_table(raw, header, _waits)}

Tentative results, and how long it took from the return of the stream until everything was replaced:

{_table(raw, header, _corrections)}
"""
    )


def _waits(one: Repetition) -> str:
    return f"{one['longest_s']:.1f} s / {one['within']:.2%}"


def _corrections(one: Repetition) -> str:
    return f"{one['tentative_results']:,} / {one['corrected_s']:.1f} s"


def _table(raw: Raw, header: list[str], told: Callable[[Repetition], str]) -> str:
    return table(header, [[named(choice), *map(told, _of(raw, choice))] for choice in CHOICES])


def _of(raw: Raw, choice: Choice) -> list[Repetition]:
    return raw.of(what=_WHAT, on_failure=choice[0], on_correction=choice[1])
