"""``trailmark compare``."""

from __future__ import annotations

import argparse
import json

import pyarrow as pa

from trailmark import units
from trailmark.cli.codes import OK, WRONG
from trailmark.cli.place import find_rows
from trailmark.cli.rows import plain_rows, row_text
from trailmark.cli.terminal import show
from trailmark.drawing import Cell, Line, line
from trailmark.errors import SettingError
from trailmark.inspection.read_only import ReadOnly
from trailmark.streams.replicas.comparing import Comparison, Difference, compare
from trailmark.streams.replicas.numbered import NumberedResults
from trailmark.watch.place import holds_stream


def run(options: argparse.Namespace) -> int:
    """Prints how far both have come, and where they first differ."""
    paths = (options.path, options.other)
    one, other = (_open(path) for path in paths)
    found = compare(one, other)
    if options.json:
        print(json.dumps({"paths": paths, **found.describe()}, indent=1))
    else:
        _print(found, paths)
    return OK if found.are_equal else WRONG


def _open(path: str) -> NumberedResults:
    storage = ReadOnly(find_rows(path))
    if holds_stream(storage):
        raise SettingError(
            f"{path} is a written stream: its rows have no numbers.",
            fix="Give the paths of two operators with numbered=True.",
        )
    return NumberedResults(storage, path)


def _print(found: Comparison, paths: tuple[str, str]) -> None:
    most = max(found.results)
    lines = []
    for path, results in zip(paths, found.results, strict=True):
        behind = f", {most - results:,} behind" if results < most else ""
        lines.append(line(f"{path}: {units.some(results, 'result')}{behind}"))
    for bucket in found.apart:
        gone = "what one still has, the other has not given yet"
        lines.append(line(f"bucket {bucket}: not compared: {gone}"))
    for difference in found.differences:
        lines += _difference_lines(difference, paths, found.moments)
    if found.are_equal:
        lines.append(line(Cell("equal", "good"), f": {units.some(found.compared, 'result')}"))
    else:
        differing = units.some(len(found.differences), "bucket")
        lines.append(line(Cell("different", "bad"), f": {differing}"))
    show(lines)


def _difference_lines(
    found: Difference, paths: tuple[str, str], moments: frozenset[str]
) -> list[Line]:
    if found.batches is None or found.rows is None:
        return [line(f"bucket {found.bucket} differs before number {found.number}, now trimmed")]
    lines = [line(f"bucket {found.bucket} differs from number {found.number} on:")]
    for path, batch, row in zip(paths, found.batches, found.rows, strict=True):
        (shown,) = plain_rows(pa.Table.from_batches([row]))
        lines.append(line(f"  {path}, batch {batch}: {row_text(shown, moments)}"))
    return lines
