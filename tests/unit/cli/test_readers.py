"""``trailmark readers`` lists who reads, and forgets whom it is told to, after asking."""

from __future__ import annotations

import io
import re
import sys

import pytest

from tests.support.stored import SECOND, StoredAt
from tests.support.written import Written
from tests.unit.cli.conftest import Run
from trailmark.log import LocalStorage
from trailmark.log.clock import wall_clock_us
from trailmark.log.readers import acknowledge, reader_names, register
from trailmark.records import Stream


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def _rows(out: str) -> dict[str, list[str]]:
    return {
        cells[0]: cells[1:] for cells in (re.split("  +", each) for each in out.splitlines()[1:])
    }


@pytest.fixture
def read(stream: StoredAt) -> StoredAt:
    """A stream with two readers."""
    an_hour_ago = wall_clock_us() - 3600 * SECOND
    register(stream.storage, "billing", Stream.BATCHES, 2, lambda: an_hour_ago)
    register(stream.storage, "search", Stream.BATCHES, 6)
    return stream


def test_readers_of_a_stream_are_listed_with_how_far_they_are(read: StoredAt, run: Run) -> None:
    said = run("readers", read.path)
    assert (said.code, said.err) == (0, "")
    rows = _rows(said.out)
    assert rows["billing"] == ["batches", "2", "4", "80", "1 h 0 min ago"]
    assert rows["search"][:4] == ["batches", "6", "0", "0"]


def test_readers_of_replicas_are_listed_with_whom_they_follow(counted: Written, run: Run) -> None:
    storage = LocalStorage(counted.path)
    for name, follows in (("here", True), ("there", False)):
        acknowledge(storage, name, Stream.OUTPUT, 3, follows=follows)
    rows = _rows(run("readers", counted.path).out)
    assert rows["here"][0] == "output, follows this replica"
    assert rows["there"][0] == "output, follows another one"
    found = run("status", counted.path, "--json").json["readers"]
    assert [each["follows"] for each in found] == [True, False]


def test_readers_of_an_operator_are_listed_with_the_log_they_read(
    counted: Written, run: Run
) -> None:
    storage = LocalStorage(counted.path)
    register(storage, "audit", Stream.INPUT, 3)
    register(storage, "billing", Stream.OUTPUT, counted.newest + 1)
    rows = _rows(run("readers", counted.path).out)
    assert rows["audit"][:3] == ["input", "3", str(counted.newest + 1 - 3)]
    assert rows["billing"][:3] == ["output", str(counted.newest + 1), "0"]
    said = run("status", counted.path)
    assert said.code == 0
    assert re.search(rf"^audit +input +3 +{counted.newest - 2} ", said.out, re.MULTILINE)
    found = run("status", counted.path, "--json").json["readers"]
    assert found == run("readers", counted.path, "--json").json["readers"]
    assert [(each["name"], each["stream"], each["needs"]) for each in found] == [
        ("audit", "input", 3),
        ("billing", "output", counted.newest + 1),
    ]


def test_nobody_reads(stream: StoredAt, counted: Written, run: Run) -> None:
    for path in (stream.path, counted.path):
        said = run("readers", path)
        assert (said.code, said.out) == (0, f"{path}: no named readers\n")
        assert run("readers", path, "--json").json == {"path": str(path), "readers": []}
        assert "reader" not in run("status", path).out


def test_a_reader_is_forgotten_without_asking_where_a_script_says_so(
    read: StoredAt, run: Run
) -> None:
    said = run("readers", read.path, "--forget", "billing", "--yes")
    assert said.code == 0
    assert "reader billing is forgotten" in said.out
    assert reader_names(read.storage) == ["search"]
    said = run("readers", read.path, "--forget", "search", "--yes", "--json")
    assert said.json == {"path": str(read.path), "forgotten": "search"}
    assert reader_names(read.storage) == []


@pytest.mark.parametrize(("answer", "is_kept"), [("yes\n", False), ("no\n", True), ("", True)])
def test_somebody_is_asked(
    answer: str, is_kept: bool, read: StoredAt, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", _Terminal(answer))
    said = run("readers", read.path, "--forget", "billing")
    assert said.code == 0
    assert _rows(said.out)["billing"][1] == "2"
    assert "search" not in said.out
    assert ("Nothing was changed." in said.out) is is_kept
    assert ("billing" in reader_names(read.storage)) is is_kept


@pytest.mark.parametrize("arguments", [[], ["--json"]])
def test_nothing_is_forgotten_where_nobody_can_be_asked(
    arguments: list[str], read: StoredAt, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    stdin = _Terminal("yes\n") if arguments else io.StringIO("yes\n")
    monkeypatch.setattr(sys, "stdin", stdin)
    said = run("readers", read.path, "--forget", "billing", *arguments)
    assert (said.code, said.out) == (2, "")
    assert "--yes" in said.err
    assert reader_names(read.storage) == ["billing", "search"]


@pytest.mark.parametrize("name", ["nobody", "", "../meta", "billing.json"])
def test_an_unknown_name_is_told_in_one_line_with_the_known_ones(
    name: str, read: StoredAt, run: Run
) -> None:
    before = read.contents()
    said = run("readers", read.path, "--forget", name, "--yes")
    assert (said.code, said.out) == (2, "")
    assert said.err == (
        f"trailmark readers: There is no reader {name!r}. (--forget) "
        "The readers are billing, search.\n"
    )
    assert read.contents() == before


@pytest.mark.parametrize("kind", ["stream", "operator"])
def test_a_damaged_reader_is_pointed_out_and_can_be_forgotten(
    kind: str, read: StoredAt, counted: Written, run: Run
) -> None:
    path = read.path if kind == "stream" else counted.path
    storage = LocalStorage(path)
    register(storage, "billing", Stream.BATCHES if kind == "stream" else Stream.OUTPUT, 3)
    name = path / "readers" / "billing.json"
    name.write_bytes(name.read_bytes()[:-9])
    complaint = "! What reader 'billing' needs cannot be read. Start the reader, "
    for command in ("readers", "status"):
        said = run(command, path)
        assert said.code == 1
        assert complaint in said.out
        assert f"trailmark readers {path} --forget billing" in said.out
    said = run("verify", path)
    assert said.code == 1
    assert said.out.startswith("readers/billing.json: damaged\n")
    assert run("readers", path, "--forget", "billing", "--yes").code == 0
    assert not name.exists()
    for command in ("readers", "status", "verify"):
        assert run(command, path).code == 0


def test_trim_of_an_operator_says_which_reader_holds_it_back(counted: Written, run: Run) -> None:
    storage = LocalStorage(counted.path)
    assert all(report.account.keep_output_from > 2 for report in counted.reports[-1])
    register(storage, "billing", Stream.OUTPUT, 1)
    register(storage, "archive", Stream.OUTPUT, 2)
    said = run("trim", counted.path, "--before-batch", 100, "--dry-run")
    assert said.out.count("; readers archive, billing hold back batch 1 and later\n") == 2
    assert "bucket 0 input" in said.out
    assert said.out.count("a recovery needs batch ") == 2, "of the inputs, which nobody reads"
    run("readers", counted.path, "--forget", "billing", "--yes")
    found = run("trim", counted.path, "--before-batch", 100, "--json").json["logs"]
    outputs = [log for log in found if log["stream"] == "output"]
    assert [(log["before_batch"], log["held_by"]) for log in outputs] == [(2, ["archive"])] * 2
    said = run("trim", counted.path, "--before-batch", 2)
    assert "reader" not in said.out, "nobody holds back what nobody wants to remove"
