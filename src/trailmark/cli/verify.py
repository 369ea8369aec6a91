"""``trailmark verify``."""

from __future__ import annotations

import argparse
import json
import sys

from trailmark import units
from trailmark.cli.codes import OK, WRONG
from trailmark.cli.place import find_rows
from trailmark.cli.terminal import Paint, Passing
from trailmark.inspection.verify import Finding, Verification, verify_operator
from trailmark.streams.verify import verify_stream
from trailmark.watch.place import holds_stream

#: Bytes between two updates of the progress line.
_STEP = 4_000_000


class _Progress:
    """A line on a terminal that says how far the reading has come."""

    def __init__(self) -> None:
        self._line = Passing(sys.stderr)
        self._log = ""
        self._bytes = 0
        self._shown = 0

    def begin(self, directory: str, number: int, count: int) -> None:
        self._log = f"{directory} ({number} of {count})"
        self._show()

    def read(self, count: int) -> None:
        self._bytes += count
        if self._bytes - self._shown >= _STEP:
            self._show()

    def _show(self) -> None:
        self._shown = self._bytes
        self._line.show(f"verifying {self._log}, {units.size(self._bytes)} read")

    def end(self) -> None:
        self._line.clear()


def run(options: argparse.Namespace) -> int:
    """Prints every problem; the exit code tells whether there is any."""
    storage = find_rows(options.path)
    progress = _Progress()
    verify = verify_stream if holds_stream(storage) else verify_operator
    try:
        found = verify(storage, on_log=progress.begin, on_read=progress.read)
    finally:
        progress.end()
    if options.json:
        print(json.dumps({"path": options.path, **found.describe()}, indent=1))
    else:
        _print(found, options.path)
    return OK if found.is_whole else WRONG


def _print(found: Verification, path: str) -> None:
    paint = Paint(sys.stdout)
    for finding in found.findings:
        print(_finding_text(finding, path, paint))
    for note in found.notes:
        print(f"note: {note}")
    data = f"{units.some(found.data_files, 'data file')}, " if found.data_files else ""
    size = (
        f"{units.some(found.logs, 'log')}, {found.batches:,} segments, "
        f"{data}{units.size(found.bytes)}"
    )
    if found.is_whole:
        print(f"{path}: {paint('whole', 'good')} ({size})")
    else:
        problems = units.some(len(found.findings), "problem")
        print(f"{path}: {paint(problems, 'bad')} ({size})")


def _finding_text(finding: Finding, path: str, paint: Paint) -> str:
    fix = finding.fix.replace("PATH", path)
    return f"{paint(finding.path, 'bold')}: {finding.trouble}\n  {finding.what}\n  next: {fix}"
