"""``trailmark truncate``."""

from __future__ import annotations

import argparse
import json

from trailmark import units
from trailmark.cli.codes import OK, WRONG
from trailmark.cli.place import Files, only_operator, open_to_change, open_to_look
from trailmark.cli.question import check_can_ask, says_yes
from trailmark.cli.terminal import say
from trailmark.drawing import Cell
from trailmark.errors import BatchGoesBackward
from trailmark.inspection.logs import OperatorFiles
from trailmark.upkeep.truncate import (
    TruncatePlan,
    TruncateReport,
    plan_truncate,
    truncate_operator,
)

_AFTERWARDS = (
    "Before the query starts again, roll its Spark checkpoint back to batch {batch}; a file sink, "
    "too. docs/operations.md says how. A new checkpoint will not do: it begins at batch 0."
)


def run(options: argparse.Namespace) -> int:
    """Says what would go, asks, and sets it aside."""
    plan = plan_truncate(_operator(open_to_look(options.path)), options.to_batch)
    if plan.is_empty:
        _say_nothing_to_do(options)
        return OK
    if not options.yes and not _is_wanted(plan, options):
        print("Nothing was changed.")
        return OK
    files = _operator(open_to_change(options.path))
    if plan_truncate(files, options.to_batch) != plan:
        raise BatchGoesBackward(
            "The logs have changed meanwhile: the query is running.",
            fix="Stop the query, then run this again. Nothing was changed.",
        )
    report = truncate_operator(files, options.to_batch)
    if options.json:
        print(json.dumps(_describe(report, options), indent=1))
    else:
        _print(report, options)
    return WRONG if report.problems else OK


def _operator(files: Files) -> OperatorFiles:
    return only_operator(
        files,
        "A written stream cannot be cut off: its readers may have read the batches already, and "
        "its writers would not write them again.",
        "Leave out the rows when you read, by batch or by time, or write what is right to a new "
        "path.",
    )


def _is_wanted(plan: TruncatePlan, options: argparse.Namespace) -> bool:
    check_can_ask(options, "cuts batches off")
    first, last = plan.to_batch + 1, plan.newest
    batches = f"batch {last}" if first == last else f"batches {first} to {last}"
    print(f"{options.path}: {batches} will be set aside:")
    for log in plan.logs:
        apart = f", {units.some(log.apart, 'pack')} taken apart" if log.apart else ""
        print(f"  {log.directory}  {units.some(log.files, 'file')}{apart}, {units.size(log.bytes)}")
    if plan.marks:
        print(f"  {units.some(len(plan.marks), 'mark')} of commits and watermarks")
    say(Cell("The query must be stopped, and its Spark checkpoint go back as well.", "warning"))
    return says_yes()


def _say_nothing_to_do(options: argparse.Namespace) -> None:
    if options.json:
        print(json.dumps(_describe(TruncateReport((), ()), options), indent=1))
    else:
        print(f"{options.path}: there is nothing after batch {options.to_batch}.")


def _print(report: TruncateReport, options: argparse.Namespace) -> None:
    for source, target in report.moved:
        print(f"{source} -> {target}")
    moved = units.some(len(report.moved), "file")
    print(f"{options.path}: ends with batch {options.to_batch} now; {moved} set aside.")
    for problem in report.problems:
        print(f"still wrong: {problem.path}: {problem.what}")
    print(_AFTERWARDS.format(batch=options.to_batch))


def _describe(report: TruncateReport, options: argparse.Namespace) -> dict[str, object]:
    return {
        "path": options.path,
        "to_batch": options.to_batch,
        "moved": [{"from": source, "to": target} for source, target in report.moved],
        "problems": [
            {"path": each.path, "trouble": each.trouble, "batch": each.batch, "what": each.what}
            for each in report.problems
        ],
    }
