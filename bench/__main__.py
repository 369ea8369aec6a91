"""Runs experiments, and makes docs/benchmarks.md from what they have left.

python -m bench run [--full] [name ...]     measure; without names all, long ones only with --full
python -m bench page                        only make the page again
python -m bench check [--accept]            compare ratios with the baseline
python -m bench list                        names and titles
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Sequence

from bench.check import check
from bench.experiment import Effort, Experiment, run
from bench.experiments import ALL, QUICK
from bench.page import write_page


def _run_one(experiment: Experiment, effort: Effort) -> None:
    began = time.monotonic()

    def note(text: str) -> None:
        print(f"{time.monotonic() - began:6.0f} s  {experiment.NAME}: {text}", file=sys.stderr)

    note(experiment.TITLE)
    note(f"left {run(experiment, effort, note)}")


def _run_each(chosen: Sequence[Experiment], effort: Effort) -> int:
    """Each in a process of its own: what Spark was told by one is not known to the next. The page
    takes some seconds, and is made once."""
    failed = []
    for number, experiment in enumerate(chosen, 1):
        print(f"--- {number} of {len(chosen)}", file=sys.stderr)
        options = ["--no-page"] if effort.is_quick else ["--no-page", "--full"]
        command = [sys.executable, "-m", "bench", "run", *options, experiment.NAME]
        if subprocess.run(command).returncode != 0:
            failed.append(experiment.NAME)
    if failed:
        print(f"These failed, and their raw files are as before: {', '.join(failed)}.")
    return int(bool(failed))


def _chosen(names: Sequence[str], effort: Effort) -> list[Experiment]:
    """Those that are named; else all, but long ones only with full effort."""
    known = {experiment.NAME: experiment for experiment in ALL}
    unknown = [name for name in names if name not in known]
    if unknown:
        raise SystemExit(f"There is no experiment {unknown[0]!r}. There are: {', '.join(known)}.")
    if names:
        return [known[name] for name in names]
    return list(effort.pick(QUICK, ALL))


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    runs = commands.add_parser("run", help="measure, then make the page")
    runs.add_argument("--full", action="store_true", help="more sizes and more repetitions")
    runs.add_argument("--no-page", action="store_true", help="leave raw files only")
    runs.add_argument(
        "names", nargs="*", help="experiments; without names all, long ones only with --full"
    )
    commands.add_parser("page", help="make docs/benchmarks.md from the raw files that are there")
    checks = commands.add_parser("check", help="fail if a ratio is worse than the baseline's")
    checks.add_argument("--accept", action="store_true", help="make what is found the baseline")
    commands.add_parser("list", help="names and titles of the experiments")
    asked = parser.parse_args(arguments)
    # Workers of Spark keep what they compile, as for an installed package.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    if asked.command == "run":
        effort = Effort(is_quick=not asked.full)
        chosen = _chosen(asked.names, effort)
        failed = 0
        if len(chosen) > 1:
            failed = _run_each(chosen, effort)
        else:
            _run_one(chosen[0], effort)
        if not asked.no_page:
            print(write_page(ALL))
        return failed
    if asked.command == "page":
        print(write_page(ALL))
    elif asked.command == "check":
        return check(lambda text: print(f"... {text}", file=sys.stderr), accepts=asked.accept)
    else:
        for experiment in ALL:
            print(f"{experiment.NAME:<20} {experiment.TITLE}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
