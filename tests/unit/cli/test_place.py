"""A path that cannot be used gets one clear line and exit code 2, and nothing is made there."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.support.written import Written
from tests.unit.cli.conftest import Run

_COMMANDS = {
    "status": [],
    "log": [],
    "verify": [],
    "readers": [],
    "writers": [],
    "recover": ["--dry-run"],
    "trim": ["--before-batch", "3"],
    "merge": [],
    "truncate": ["--to-batch", "3", "--yes"],
}


def _tree(path: Path) -> list[str]:
    return sorted(str(each) for each in path.rglob("*"))


@pytest.mark.parametrize("command", _COMMANDS)
@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("missing", "does not exist"),
        ("missing/deeper", "does not exist"),
        ("file", "not a directory"),
        ("file/below", "not a directory"),
        ("empty", "it is empty"),
        ("other", "has no meta.json"),
        ("", "has no meta.json"),
    ],
)
def test_a_path_without_logs_is_told_in_one_line_and_nothing_is_made(
    command: str, name: str, why: str, tmp_path: Path, run: Run
) -> None:
    (tmp_path / "file").write_text("no log")
    (tmp_path / "empty").mkdir()
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "data.parquet").write_text("no log")
    before = _tree(tmp_path)
    said = run(command, tmp_path / name, *_COMMANDS[command])
    assert said.code == 2
    assert said.out == ""
    assert said.err.count("\n") == 1
    assert said.err.startswith(f"trailmark {command}: {tmp_path / name} ")
    assert why in said.err
    assert "Give the path that the operator was given" in said.err
    assert _tree(tmp_path) == before


@pytest.mark.parametrize("url", ["ftp://host/x", "s3://", "file://host/x", ""])
def test_a_url_that_names_no_storage_is_told_in_one_line(url: str, run: Run) -> None:
    said = run("status", url)
    assert (said.code, said.out) == (2, "")
    assert said.err.count("\n") == 1
    assert "names no storage" in said.err
    assert "s3://bucket/prefix" in said.err


def test_a_relative_path_is_told_in_full(
    tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert f" {tmp_path}/nothing is no Trailmark log" in run("status", "nothing").err


def test_a_directory_of_operators_names_them(counted: Written, timed: Written, run: Run) -> None:
    above = counted.path.parent
    said = run("status", above)
    assert said.code == 2
    assert said.err.count("\n") == 1
    assert f"{above}/counted, {above}/timed" in said.err


def test_file_urls_are_taken(counted: Written, run: Run) -> None:
    said = run("status", counted.path.as_uri(), "--json")
    assert said.code == 0
    assert said.json["last_batch"] == counted.newest


def test_logs_that_may_not_be_read_are_told_in_one_line(
    counted: Written, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: str) -> None:
        raise PermissionError(13, "Permission denied", path)

    monkeypatch.setattr(os, "stat", refuse)
    said = run("status", counted.path)
    assert (said.code, said.out) == (2, "")
    assert said.err.count("\n") == 1
    assert "Permission denied" in said.err
    assert "Run it as a user who may read the logs" in said.err


def test_a_damaged_description_is_told_in_one_line(counted: Written, run: Run) -> None:
    counted.flip("meta.json", 40)
    said = run("status", counted.path)
    assert said.code == 2
    assert said.err.count("\n") == 1
    assert "meta.json" in said.err
