"""Logs of a query that ran to its end, as files for whoever has only them."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.support.engine import Query
from trailmark.checkpoint.policy import Policy
from trailmark.cli import main
from trailmark.engine import BatchReport
from trailmark.engine.commits import mark_committed
from trailmark.testing.disk import SimulatedDisk


@dataclass(frozen=True)
class Logs:
    """All batches committed; ``reports[batch][bucket]``."""

    case: Any
    query: Query
    path: Path
    reports: list[list[BatchReport]]


def commit_all(path: Path, case: Any, policy: Policy, buckets: int) -> Logs:
    """Runs all batches of a case, and writes what is on its disk to real files."""
    disk = SimulatedDisk()
    query = Query(case, disk, policy, buckets)
    reports = []
    for batch, rows in enumerate(case.batches):
        reports.append(query.run(batch, case.split(rows, buckets)))
        mark_committed(disk.storage(), batch, "a run")
    query.stop()
    for name in disk.files():
        (path / name).parent.mkdir(parents=True, exist_ok=True)
        (path / name).write_bytes(disk.content(name))
    return Logs(case, query, path, reports)


def said(capsys: pytest.CaptureFixture[str], *arguments: object) -> list[Any]:
    """What a command prints, a value a line."""
    assert main([str(each) for each in arguments]) == 0
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]
