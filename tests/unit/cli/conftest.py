"""Logs to look at, and a way to run the command line on them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.support.stored import StoredAt, stored_at
from tests.support.written import Written, count_orders, time_orders, write_logs
from trailmark.cli import main


class Said(NamedTuple):
    """What a command said, and how it ended."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


Run = Callable[..., Said]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    def call(*arguments: object) -> Said:
        capsys.readouterr()
        code = main([str(each) for each in arguments])
        said = capsys.readouterr()
        return Said(code, said.out, said.err)

    return call


@pytest.fixture(scope="session")
def first_counted(tmp_path_factory: pytest.TempPathFactory) -> Written:
    return write_logs(tmp_path_factory.mktemp("logs") / "counted", count_orders(), stop_before=7)


@pytest.fixture(scope="session")
def first_timed(tmp_path_factory: pytest.TempPathFactory) -> Written:
    return write_logs(tmp_path_factory.mktemp("logs") / "timed", time_orders())


@pytest.fixture
def counted(first_counted: Written, tmp_path: Path) -> Written:
    """Ten orders of an item, by a query that recovered before batch 7."""
    return first_counted.copy_to(tmp_path / "counted")


@pytest.fixture
def timed(first_timed: Written, tmp_path: Path) -> Written:
    """Ten seconds of orders of an item."""
    return first_timed.copy_to(tmp_path / "timed")


@pytest.fixture
def stream(tmp_path: Path) -> StoredAt:
    """A written stream of six batches in two buckets, with event times."""
    return stored_at(tmp_path / "stream")
