"""``trim``, ``merge`` and ``truncate`` do what they say, and say what they did."""

from __future__ import annotations

import io
import sys

import pytest

from tests.support.written import Written
from tests.unit.cli.conftest import Run
from trailmark.cli import main


def _sizes(files: dict[str, bytes]) -> dict[str, int]:
    return {name: len(data) for name, data in files.items()}


# trim


def test_a_dry_run_of_trim_tells_what_the_trim_then_does(counted: Written, run: Run) -> None:
    before = counted.files()
    told = run("trim", counted.path, "--before-batch", 9, "--dry-run", "--json").json
    assert counted.files() == before
    done = run("trim", counted.path, "--before-batch", 9, "--json").json
    gone = before.keys() - counted.files().keys()
    assert {**told, "is_dry_run": False} == done
    assert done["files"] == len(gone) > 0
    assert done["bytes"] == sum(_sizes(before)[name] for name in gone)


def test_trim_keeps_what_a_recovery_needs_and_says_so(counted: Written, run: Run) -> None:
    said = run("trim", counted.path, "--before-batch", 100)
    assert said.code == 0
    for number, report in enumerate(counted.reports[-1]):
        first = min(report.account.keep_from, counted.newest - 1)
        assert f"bucket {number} input" in said.out
        assert f"a recovery needs batch {first} and later" in said.out
        held = counted.place.logs().input(number).batches()
        assert held == list(range(first, counted.newest + 1))
    assert run("recover", counted.path, "--dry-run").code == 0


def test_trim_leaves_a_bucket_alone_that_it_cannot_judge(counted: Written, run: Run) -> None:
    counted.flip(f"out/00001/{counted.newest:020d}.seg", -40)
    said = run("trim", counted.path, "--before-batch", 100)
    assert said.code == 1
    assert "left alone: bucket 1: " in said.out


# merge


def test_merge_packs_and_reports(counted: Written, run: Run) -> None:
    said = run("merge", counted.path)
    assert said.code == 0
    packs = [name for name in counted.files() if name.endswith(".pack")]
    assert len(packs) == 2
    for number, report in enumerate(counted.reports[-1]):
        merged = report.account.keep_output_from
        assert f"bucket {number}: {merged} segments merged into 1 pack, " in said.out
    assert run("merge", counted.path).out == (
        "bucket 0: nothing to merge\nbucket 1: nothing to merge\n"
    )
    assert run("verify", counted.path).code == 0


def test_merge_reports_damage_with_code_1(counted: Written, run: Run) -> None:
    name = f"out/00000/{1:020d}.seg"
    counted.flip(name)
    said = run("merge", counted.path, "--json")
    assert said.code == 1
    assert name in said.json["buckets"][0]["problem"]


# truncate


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def _answer(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setattr(sys, "stdin", _Terminal(text))


def test_truncate_refuses_to_cut_unasked(
    counted: Written, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = counted.files()
    monkeypatch.setattr(sys, "stdin", io.StringIO("yes\n"))
    said = run("truncate", counted.path, "--to-batch", 8)
    assert (said.code, said.out) == (2, "")
    assert said.err.count("\n") == 1
    assert "--yes" in said.err
    assert counted.files() == before


def test_json_is_no_place_for_a_question(
    counted: Written, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    _answer(monkeypatch, "yes\n")
    said = run("truncate", counted.path, "--to-batch", 8, "--json")
    assert (said.code, said.out) == (2, "")
    assert "--yes" in said.err


@pytest.mark.parametrize("answer", ["no\n", "y\n", "\n", "", "YES\n"])
def test_only_yes_is_yes(
    answer: str, counted: Written, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = counted.files()
    _answer(monkeypatch, answer)
    said = run("truncate", counted.path, "--to-batch", 8)
    assert said.code == 0
    assert "batches 9 to 11 will be set aside" in said.out
    assert "out/00001  3 files, " in said.out
    assert "The query must be stopped, and its Spark checkpoint go back" in said.out
    assert said.out.endswith("Nothing was changed.\n")
    assert counted.files() == before


def test_yes_cuts_and_tells_where_everything_went(
    counted: Written, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = counted.files()
    _answer(monkeypatch, "yes\n")
    said = run("truncate", counted.path, "--to-batch", 8)
    assert said.code == 0
    after = counted.files()
    done = said.out.partition('Type "yes" to go on: ')[2]
    moved = dict(line.split(" -> ") for line in done.splitlines() if " -> " in line)
    assert len([name for name in moved if name.startswith(("in/", "out/"))]) == 2 * 2 * 3
    assert len([name for name in moved if name.startswith("commits/")]) == 3
    for name, data in before.items():
        assert after[moved.get(name, name)] == data
    assert "roll its Spark checkpoint back to batch 8" in said.out
    assert run("status", counted.path, "--json").json["last_batch"] == 8


def test_a_query_goes_on_after_the_batch_it_was_cut_to(timed: Written, run: Run) -> None:
    assert run("truncate", timed.path, "--to-batch", 8, "--yes").code == 0
    case = timed.place.case
    for batch in range(9, len(case.batches)):
        for number, part in enumerate(case.split(case.batches[batch], 2)):
            bucket = timed.place.bucket(number)
            report = bucket.run(batch, part)
            bucket.close()
            assert not report.was_logged
            assert report.results == timed.reports[batch][number].results
            assert report.account.open_windows == timed.reports[batch][number].account.open_windows
    assert run("verify", timed.path).code == 0


def test_truncate_in_a_script_reports_as_json(counted: Written, run: Run) -> None:
    said = run("truncate", counted.path, "--to-batch", 8, "--yes", "--json")
    assert said.code == 0
    assert {each["from"] for each in said.json["moved"]} >= {f"out/00000/{11:020d}.seg"}
    assert said.json["problems"] == []


@pytest.mark.parametrize("extra", [[], ["--json"]])
def test_nothing_to_cut_is_no_question(extra: list[str], counted: Written, run: Run) -> None:
    before = counted.files()
    said = run("truncate", counted.path, "--to-batch", counted.newest, *extra)
    assert said.code == 0
    assert counted.files() == before


def test_a_batch_that_not_every_bucket_has_is_refused_in_one_line(
    counted: Written, run: Run
) -> None:
    before = counted.files()
    said = run("truncate", counted.path, "--to-batch", 50, "--yes")
    assert (said.code, said.out) == (2, "")
    assert said.err.count("\n") == 1
    assert "Batch 50 is not in the output log of bucket 0, which holds batches 0 to 11" in said.err
    assert counted.files() == before


def test_a_query_that_writes_meanwhile_is_noticed(
    timed: Written, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A batch is published between the question and the answer."""
    case = timed.place.case

    class Late(_Terminal):
        def readline(self, *_: object) -> str:  # type: ignore[override]
            bucket = timed.place.bucket(0)
            bucket.run(len(case.batches), case.split(case.batches[0], 2)[0])
            bucket.close()
            return "yes\n"

    monkeypatch.setattr(sys, "stdin", Late())
    assert main(["truncate", str(timed.path), "--to-batch", "8"]) == 2
    assert "the query is running" in capsys.readouterr().err
    assert not (timed.path / "aside").exists()
