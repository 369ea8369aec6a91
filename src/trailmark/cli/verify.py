"""``trailmark verify``."""

from __future__ import annotations

import argparse
import json

from trailmark import units
from trailmark.cli.codes import OK, WRONG
from trailmark.cli.place import find_rows
from trailmark.cli.terminal import Bar, show
from trailmark.drawing import Cell, Line, line
from trailmark.inspection.verify import Finding, Verification, verify_operator
from trailmark.streams.verify import verify_stream
from trailmark.watch.place import holds_stream


def run(options: argparse.Namespace) -> int:
    """Prints every problem; the exit code tells whether there is any."""
    storage = find_rows(options.path)
    verify = verify_stream if holds_stream(storage) else verify_operator
    with Bar("verifying") as bar:
        found = verify(storage, on_log=bar.begin, on_read=bar.read)
    if options.json:
        print(json.dumps({"path": options.path, **found.describe()}, indent=1))
    else:
        _print(found, options.path)
    return OK if found.is_whole else WRONG


def _print(found: Verification, path: str) -> None:
    data = f"{units.some(found.data_files, 'data file')}, " if found.data_files else ""
    size = (
        f"{units.some(found.logs, 'log')}, {found.batches:,} segments, "
        f"{data}{units.size(found.bytes)}"
    )
    verdict = Cell("whole", "good")
    if not found.is_whole:
        verdict = Cell(units.some(len(found.findings), "problem"), "bad")
    findings = [text for finding in found.findings for text in _finding_lines(finding, path)]
    notes = [line(f"note: {note}") for note in found.notes]
    show([*findings, *notes, line(f"{path}: ", verdict, f" ({size})")])


def _finding_lines(finding: Finding, path: str) -> list[Line]:
    return [
        line(Cell(finding.path, "bold"), f": {finding.trouble}"),
        line(f"  {finding.what}"),
        line(f"  next: {finding.fix.replace('PATH', path)}"),
    ]
