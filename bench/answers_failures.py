"""Whether a union answers in time while one of its streams is missing: on Spark, with three
processes that write, and in the engine. `make bench-answers` runs it.

A tuple's delay is from its commit to its stream, which its writer has written down, until Spark has
committed the batch that took it in, which is the time of the file in Spark's commit log: then the
sink has every result that the tuple completes. All tuples count that were committed from the
beginning of the failure until everything was replaced, except those that the silent stream missed:
they were not there to be answered, and come with the correction.
"""

from __future__ import annotations

import argparse
import logging
from pathlib import Path

from pyspark.sql import SparkSession

from bench.figures import Figure, Report
from bench.stalls.life import Life
from bench.stalls.live import DoesNotKeepUp, Found, Trial, try_failure
from bench.stalls.part import BOUND_S, CHOICES, RATE, Asked, named

#: Tuples a second; where two cores do not carry them beside the writers, the next fewer.
RATES = (50_000, 40_000, 30_000, 20_000, 10_000)
FAILURES_S = (2.0, 10.0, 30.0, 60.0)
_IN_TIME = 0.999
#: After a failure of 60 s: on Spark, and in the engine.
_LONG_S = 60
_CORRECTED_S, _CORRECTED_IN_ENGINE_S = 30, 10
#: Part of the bound that is waited: a failure that is shorter leaves no trace.
_WAITED = 0.9


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What can be asked of it."""
    group = parser.add_argument_group("failures")
    group.add_argument("--rate", type=int, nargs="+", default=RATES, help="tuples a second")
    group.add_argument("--silent", type=float, nargs="+", default=FAILURES_S, help="for so many s")
    text = f"all six of on_failure and on_correction at {RATE:,} tuples a second, too"
    group.add_argument("--all-choices", action="store_true", help=text)


def failing(report: Report, spark: SparkSession, root: Path, arguments: argparse.Namespace) -> None:
    logging.getLogger("trailmark").setLevel(logging.ERROR)  # that something is missing is the point
    rate = _carried(report, spark, root, arguments.rate)
    report.add(Figure("tuples per second of three writers", rate, "tuples/s"))
    for failure_s in arguments.silent:
        report.note(f"a stream is silent for {failure_s:g} s, at {rate:,} tuples a second")
        trial = Trial(rate, failure_s)
        found = try_failure(spark, root / f"silent-{failure_s:g}", trial)
        _report(report, f"silent for {failure_s:g} s", trial, found)
    if arguments.all_choices:
        for choice in CHOICES:
            for failure_s in arguments.silent:
                report.note(f"{named(choice)}, silent for {failure_s:g} s")
                trial = Trial(RATE, failure_s, choice)
                place = root / f"{'-'.join(choice)}-{failure_s:g}"
                what = f"{named(choice)}, {failure_s:g} s"
                _report(report, what, trial, try_failure(spark, place, trial))
    longest_s = max(arguments.silent)
    report.note(f"in the engine, {longest_s:g} s at {RATES[0]:,} tuples a second")
    asked = Asked(RATES[0], longest_s)
    lived = Life(asked.rate, asked.answering).run(longest_s)
    what = f"engine, missing for {longest_s:g} s"
    report.add(Figure(f"{what}: longest delay", lived.longest_s, "s", BOUND_S))
    limit = _CORRECTED_IN_ENGINE_S if longest_s <= _LONG_S else None
    report.add(Figure(f"{what}: corrected after", lived.corrected_s, "s", limit))


def _carried(report: Report, spark: SparkSession, root: Path, rates: list[int]) -> int:
    """The most that the query keeps up with, beside the writers. Spark compiles its own code in
    the first attempt, so that does not count."""
    report.note("the first run compiles Spark's own code")
    try_failure(spark, root / "warm-up", Trial(min(rates) // 2, 4, before_s=1))
    for rate in sorted(rates, reverse=True):
        report.note(f"does it keep up with {rate:,} tuples a second?")
        try:
            found = try_failure(spark, root / f"carries-{rate}", Trial(rate, 0.5))
        except DoesNotKeepUp:
            continue
        if found.before.longest_s <= _WAITED * BOUND_S:
            return rate
    raise DoesNotKeepUp(f"not even with {min(rates):,} tuples a second")


def _report(report: Report, what: str, trial: Trial, found: Found) -> None:
    """The lines of a run. What `delay` and `suspend` take is shown; the bound is for `process`."""
    is_held = trial.choice == CHOICES[0]
    share = 100 * found.during.share_within(trial.within_s)
    in_time = 100 * _IN_TIME if is_held else None
    report.add(Figure(f"{what}: answered within 3 s", share, "%", in_time, "at least"))
    report.add(Figure("  longest delay", found.during.longest_s, "s"))
    report.add(Figure("  99.9 % of all", found.during.quantile_s(_IN_TIME), "s"))
    report.add(Figure("  longest delay before the failure", found.before.longest_s, "s"))
    is_short = trial.failure_s < _WAITED * trial.within_s
    none = 0 if is_short else None
    report.add(Figure("  tentative results", found.tentative_results, "", none))
    limit = _CORRECTED_S if is_held and trial.failure_s <= _LONG_S else None
    report.add(Figure("  corrected after", found.corrected_s, "s", limit))
