"""The commands on a written stream: what they show, check and change, and what they refuse."""

from __future__ import annotations

import io
import json
import re
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.support.stored import BEGIN_US, QUERY, ROWS, SECOND, StoredAt, rows_of, stored_at
from tests.unit.cli.conftest import Run, Said
from trailmark import units
from trailmark.cli import main
from trailmark.log.readers import register
from trailmark.records import Stream
from trailmark.streams.manifest import read_manifest

_WEEK = 7 * 24 * 3600 * SECOND


def _lines(said: Said) -> list[Any]:
    return [json.loads(line) for line in said.out.splitlines()]


def _row(out: str, first: str) -> list[str]:
    """The cells of the table's row that begins so."""
    (line,) = [each for each in out.splitlines() if re.match(rf" *{first}  ", each)]
    return re.split(r"  +", line.strip())


def _data_bytes(stream: StoredAt) -> int:
    return sum(len(data) for name, data in stream.contents().items() if name.startswith("data/"))


# status


def test_status_tells_what_is_there_and_who_reads_and_writes(stream: StoredAt, run: Run) -> None:
    register(stream.storage, "billing", Stream.BATCHES, 2)
    said = run("status", stream.path)
    assert (said.code, said.err) == (0, "")
    assert f"{stream.path}: stream of 3 columns, 2 buckets by item\nbatches 0 to 5," in said.out
    held = units.size(_data_bytes(stream))
    assert _row(said.out, "last batch")[1:3] == ["1", str(ROWS)]
    assert _row(said.out, "held now") == ["held now", "6", str(6 * ROWS), held]
    assert _row(said.out, "since the start") == ["since the start", "6", str(6 * ROWS), held]
    assert "time: 1970-01-01 00:00:00Z to 1970-01-01 00:01:59Z" in said.out
    assert f"data {held} in 24 files, manifests " in said.out
    assert _row(said.out, QUERY) == [QUERY, "5"]
    assert _row(said.out, "billing")[:5] == ["billing", "batches", "2", "4", str(4 * ROWS)]


def test_status_as_json_is_exact(stream: StoredAt, run: Run) -> None:
    register(stream.storage, "billing", Stream.BATCHES, 6, lambda: 77)
    run("trim", stream.path, "--before-batch", 4)
    found = run("status", stream.path, "--json", "--look-back", 1).json
    size = _data_bytes(stream)
    newest = read_manifest(stream.files.log, 5)
    assert found["path"] == str(stream.path)
    assert (found["keys"], found["buckets"], found["time_column"]) == (["item"], 2, "time")
    assert (found["oldest_batch"], found["last_batch"]) == (4, 5)
    assert found["written_us"] == BEGIN_US + 60 * SECOND
    assert found["newest"] == {"batches": 1, "rows": ROWS, "bytes": newest.bytes, "files": 4}
    assert found["recent"] == found["newest"]
    assert found["held"] == {"batches": 2, "rows": 2 * ROWS, "bytes": size, "files": None}
    assert found["total"]["rows"] == 6 * ROWS
    assert found["total"]["bytes"] == newest.total_bytes > size
    assert found["time_range_us"] == [80 * SECOND, 119 * SECOND]
    assert found["writers"] == {QUERY: 5}
    assert found["data"] == {"files": 8, "bytes": size}
    (reader,) = found["readers"]
    assert (reader["needs"], reader["lag"], reader["lag_rows"]) == (6, 0, 0)
    assert reader["seen_us"] == 77


def test_times_are_told_from_packs_as_well(stream: StoredAt, run: Run) -> None:
    stream.files.log.merge(3)
    found = run("status", stream.path, "--json").json
    assert found["time_range_us"] == [0, 119 * SECOND]
    assert found["manifests"]["packs"] == 1


def test_a_stream_without_times_or_keys_is_a_picture_too(tmp_path: Path, run: Run) -> None:
    path = tmp_path / "plain"
    stored_at(path, 1, keys=(), buckets=None, time_column=None)
    said = run("status", path)
    assert f"{path}: stream of 3 columns, 1 bucket\nbatch 0, written " in said.out
    assert "event time        none: " in said.out
    assert "from" not in run("log", path).out


def test_no_batch_yet_is_a_picture_too(tmp_path: Path, run: Run) -> None:
    stream = stored_at(tmp_path / "new", 0)
    register(stream.storage, "early", Stream.BATCHES, 0)
    said = run("status", stream.path)
    assert said.code == 0
    assert "no batch yet" in said.out
    assert run("status", stream.path, "--json").json["readers"][0]["lag"] == 0
    assert run("verify", stream.path).code == 0
    assert run("trim", stream.path, "--before-batch", 3).code == 0
    assert run("merge", stream.path).code == 0
    assert _lines(run("log", stream.path, "--json")) == []


def test_a_damaged_newest_manifest_gives_code_1_and_the_figures_before_it(
    stream: StoredAt, run: Run
) -> None:
    stream.flip(stream.manifest(5))
    said = run("status", stream.path)
    assert said.code == 1
    assert "Figures are those of batch 4. Run trailmark verify." in said.out
    assert f"({stream.manifest(5)}, byte " in said.out


def test_a_reader_whose_batches_are_gone_is_pointed_out(stream: StoredAt, run: Run) -> None:
    run("trim", stream.path, "--before-batch", 4)
    register(stream.storage, "late", Stream.BATCHES, 1)
    said = run("status", stream.path)
    assert "! reader late needs batch 1, which is gone: the stream begins with batch 4" in said.out
    assert _row(said.out, "late")[3] == "5"


def test_watching_a_stream_shows_new_batches(
    stream: StoredAt, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    waited = []

    def sleep(seconds: float) -> None:
        waited.append(seconds)
        if len(waited) == 3:
            raise KeyboardInterrupt
        stream.run(1)

    # Not of the module time itself: threads of other tests may sleep, too.
    monkeypatch.setattr("trailmark.cli.status.time", SimpleNamespace(sleep=sleep))
    said = run("status", stream.path, "--watch", "--json")
    assert said.code == 0
    assert [each["last_batch"] for each in _lines(said)] == [5, 6, 7]
    assert [each["held"]["rows"] for each in _lines(said)] == [6 * ROWS, 7 * ROWS, 8 * ROWS]
    assert [each["time_range_us"][1] for each in _lines(said)] == [
        119 * SECOND,
        139 * SECOND,
        159 * SECOND,
    ]


@pytest.mark.parametrize(
    "arguments", [["status"], ["log", "--records"], ["verify"], ["readers"], ["trim", "--dry-run"]]
)
def test_looking_changes_nothing(arguments: list[str], stream: StoredAt, run: Run) -> None:
    before = stream.contents()
    command, *rest = arguments
    given = ["--before-batch", "4"] if command == "trim" else []
    assert run(command, stream.path, *rest, *given).code == 0
    assert stream.contents() == before


# log


def test_every_batch_is_listed_with_its_files(stream: StoredAt, run: Run) -> None:
    said = run("log", stream.path, "--json")
    assert said.code == 0
    for batch, found in enumerate(_lines(said)):
        manifest = read_manifest(stream.files.log, batch)
        assert (found["batch"], found["rows"]) == (batch, ROWS)
        assert found["written_us"] == manifest.written_us
        assert found["bytes"] == manifest.bytes
        assert found["time_range_us"] == [batch * 20 * SECOND, (batch * 20 + 19) * SECOND]
        assert [each["path"] for each in found["files"]] == [file.path for file in manifest.files]
        assert found["writers"] == {QUERY: batch}
    assert len(_lines(said)) == 6


def test_the_listing_for_people_has_a_line_per_batch(stream: StoredAt, run: Run) -> None:
    head, *lines = run("log", stream.path, "--batch", "1:4", "--limit", 3).out.splitlines()
    assert head.split() == ["batch", "written", "files", "rows", "size", "from", "to"]
    assert [line.split()[0] for line in lines] == ["1", "2", "3"]
    assert re.split("  +", lines[0].strip())[2:4] == ["4", str(ROWS)]


def test_rows_are_those_that_were_written(stream: StoredAt, run: Run) -> None:
    said = run("log", stream.path, "--records", "--json")
    found = sorted((each["batch"], each["row"]["price"]) for each in _lines(said))
    assert found == [(batch, row["price"]) for batch in range(6) for row in rows_of(batch)]


def test_rows_are_chosen_by_batch_bucket_and_key(stream: StoredAt, run: Run) -> None:
    said = run("log", stream.path, "--batch", 3, "--key", "item=7", "--records", "--json")
    assert [each["row"]["price"] for each in _lines(said)] == [307, 317]
    (bucket,) = {each["bucket"] for each in _lines(said)}
    given = ("log", stream.path, "--key", "item=7", "--json", "--bucket")
    assert [each["rows"] for each in _lines(run(*given, bucket))] == [2] * 6
    assert run(*given, 1 - bucket).out == ""
    text = run("log", stream.path, "--batch", 3, "--key", "item=7", "--records").out
    assert text.splitlines()[0].startswith(f"data/0000{bucket}       3  item=7  price=307  time=")


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["--stream", "input"], "A written stream has rows and nothing else. (--stream) Leave out"),
        (["--kind", "late"], "A written stream has rows and nothing else. (--kind) Leave out"),
        (["--bucket", "2"], "There is no bucket 2. (--bucket) There are buckets 0 to 1."),
        (["--key", "price=3"], "'price' is no key of this stream. (--key) Its keys are item."),
    ],
)
def test_what_cannot_be_asked_for_is_told_in_one_line(
    arguments: list[str], why: str, stream: StoredAt, run: Run
) -> None:
    said = run("log", stream.path, *arguments)
    assert (said.code, said.out) == (2, "")
    assert said.err.count("\n") == 1
    assert why in said.err


@pytest.mark.parametrize("harm", ["manifest", "damaged", "missing"])
def test_what_cannot_be_read_is_told_and_the_rest_is_listed(
    harm: str, stream: StoredAt, run: Run
) -> None:
    file = read_manifest(stream.files.log, 2).files[0].path
    if harm == "missing":
        (stream.path / file).unlink()
    else:
        stream.flip(stream.manifest(2) if harm == "manifest" else file)
    said = run("log", stream.path, "--records", "--json")
    assert said.code == 1
    assert said.err.startswith("batch 2: ")
    assert said.err.count("\n") == 1
    assert {each["batch"] for each in _lines(said)} >= {0, 1, 3, 4, 5}


# verify


def test_a_whole_stream_gives_code_0(stream: StoredAt, run: Run) -> None:
    said = run("verify", stream.path)
    assert (said.code, said.err) == (0, "")
    assert said.out.startswith(f"{stream.path}: whole (1 log, 6 segments, 24 data files, ")


def test_a_damaged_data_file_gives_code_1_the_file_and_the_next_step(
    stream: StoredAt, run: Run
) -> None:
    file = read_manifest(stream.files.log, 3).files[1].path
    stream.flip(file)
    said = run("verify", stream.path)
    assert said.code == 1
    first, what, following, last = said.out.splitlines()
    assert first == f"{file}: damaged"
    assert "Batch 3: " in what
    assert f"trailmark trim {stream.path} --before-batch 4" in following
    assert "truncate" not in said.out
    assert "1 problem (" in last


def test_left_over_files_are_a_note_and_no_problem(stream: StoredAt, run: Run) -> None:
    stream.now_us = BEGIN_US - 2 * _WEEK
    stream.task(rows_of(9))
    said = run("verify", stream.path)
    assert said.code == 0
    assert "note: Data files that no batch names: 2" in said.out
    assert len(run("verify", stream.path, "--json").json["notes"]) == 1


# trim


def test_a_dry_run_of_trim_tells_what_the_trim_then_does(stream: StoredAt, run: Run) -> None:
    stream.now_us = BEGIN_US - 2 * _WEEK
    stream.task(rows_of(9))
    before = stream.contents()
    told = run("trim", stream.path, "--before-batch", 4, "--dry-run", "--json").json
    assert stream.contents() == before
    done = run("trim", stream.path, "--before-batch", 4, "--json").json
    assert {**told, "is_dry_run": False} == done
    gone = before.keys() - stream.contents().keys()
    data = {name for name in gone if name.startswith("data/")}
    assert {*done["files"], *done["left_over"]["files"]} == data
    assert len(done["left_over"]["files"]) == 2
    assert done["bytes"] + done["left_over"]["bytes"] == sum(len(before[name]) for name in data)
    assert gone - data == {stream.manifest(batch) for batch in range(4)}
    assert run("verify", stream.path).out.startswith(f"{stream.path}: whole")


def test_trim_says_which_reader_holds_it_back(stream: StoredAt, run: Run) -> None:
    register(stream.storage, "billing", Stream.BATCHES, 2)
    register(stream.storage, "fast", Stream.BATCHES, 5)
    said = run("trim", stream.path, "--before-batch", 4)
    assert said.code == 0
    assert "batches    2, 8 data files, " in said.out
    assert "; reader billing needs batch 2 and later\n" in said.out
    assert stream.files.log.oldest() == 2
    said = run("trim", stream.path, "--before-batch", 100, "--json")
    assert said.json["held_by"] == ["billing"]
    run("readers", stream.path, "--forget", "billing", "--yes")
    said = run("trim", stream.path, "--before-batch", 100)
    assert "the newest batch stays" in said.out
    assert stream.files.log.batches() == [5]


def test_trim_says_that_a_pack_goes_as_a_whole(stream: StoredAt, run: Run) -> None:
    stream.files.log.merge(3)
    said = run("trim", stream.path, "--before-batch", 2)
    assert "batches    0, 0 data files, 0 B; a pack with batch 2 holds batch 0" in said.out
    assert stream.files.log.oldest() == 0


def test_trim_leaves_files_alone_that_it_cannot_judge(stream: StoredAt, run: Run) -> None:
    stream.now_us = BEGIN_US - 2 * _WEEK
    left_over = {file.path for file in stream.task(rows_of(9))}
    stream.flip(stream.manifest(4))
    said = run("trim", stream.path, "--before-batch", 2)
    assert said.code == 1
    assert "left alone: files that are left over: A file of the log does not match" in said.out
    assert stream.manifest(4) in said.out
    assert left_over <= stream.contents().keys()
    assert stream.files.log.oldest() == 2


def test_a_damaged_reader_stops_a_trim_with_one_line(stream: StoredAt, run: Run) -> None:
    register(stream.storage, "billing", Stream.BATCHES, 2)
    stream.flip("readers/billing.json", 30)
    before = stream.contents()
    said = run("trim", stream.path, "--before-batch", 4)
    assert (said.code, said.out) == (2, "")
    assert said.err.count("\n") == 1
    assert "--forget billing" in said.err
    assert stream.contents() == before


# merge, recover, truncate


def test_merge_packs_old_manifests(tmp_path: Path, run: Run) -> None:
    stream = stored_at(tmp_path / "long", 70, buckets=1)
    said = run("merge", stream.path)
    assert said.code == 0
    assert said.out.startswith("manifests: 6 segments merged into 1 pack, ")
    assert [n for n in stream.contents() if n.endswith(".pack")] == [
        f"batches/00000/{0:020d}-{5:020d}.pack"
    ]
    found = run("merge", stream.path, "--json").json
    assert (found["manifests"]["batches"], found["manifests"]["up_to"]) == (0, 5)
    assert run("verify", stream.path).code == 0


@pytest.mark.parametrize(
    ("arguments", "why", "instead"),
    [
        (["recover", "--dry-run"], "no state", "trailmark verify"),
        (["truncate", "--to-batch", "3", "--yes"], "cannot be cut off", "new path"),
    ],
)
def test_what_has_no_meaning_is_refused_with_what_to_do_instead(
    arguments: list[str], why: str, instead: str, stream: StoredAt, run: Run
) -> None:
    before = stream.contents()
    command, *rest = arguments
    said = run(command, stream.path, *rest)
    assert (said.code, said.out) == (2, "")
    assert said.err.count("\n") == 1
    assert why in said.err
    assert instead in said.err
    assert stream.contents() == before


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_progress_of_verify_names_what_is_read(
    stream: StoredAt, monkeypatch: pytest.MonkeyPatch
) -> None:
    terminal = _Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    assert main(["verify", str(stream.path)]) == 0
    assert re.search(r"verifying batches/00000 .*0/2", terminal.getvalue())
    assert re.search(r"verifying data .*1/2", terminal.getvalue())
