"""The ``trailmark`` command as it is installed, on logs that the engine has written."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import boto3
import pytest

from tests.support.processes import Pipe, Place, Worker
from tests.support.stored import ROWS, rows_of, stored_at
from tests.support.written import Written, count_orders, time_orders, write_logs
from trailmark.checkpoint.policy import Continuous
from trailmark.engine import Bucket, OperatorLogs
from trailmark.log import open_storage
from trailmark.log.readers import register
from trailmark.records import Stream
from trailmark.streams.manifest import read_manifest
from trailmark.testing.processes import AtOnce

COMMAND = Path(sys.executable).with_name("trailmark")
PATIENCE_S = 60.0


def run_command(*arguments: object, **given: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [COMMAND, *map(str, arguments)],
        check=False,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        **given,
    )


@pytest.fixture
def logs(tmp_path: Path) -> Written:
    return write_logs(tmp_path / "orders", time_orders(), stop_before=6)


def test_the_command_is_installed_and_says_its_version() -> None:
    done = run_command("--version")
    assert (done.returncode, done.stderr) == (0, "")
    assert re.fullmatch(r"trailmark \d+\.\d+\S*\n", done.stdout)


def test_a_round_through_all_commands(logs: Written) -> None:
    path = logs.path
    status = run_command("status", path)
    assert (status.returncode, status.stderr) == (0, "")
    assert f"batch {logs.newest}, committed up to {logs.newest}" in status.stdout
    found = json.loads(run_command("status", path, "--json").stdout)
    for bucket, report in zip(found["buckets"], logs.reports[-1], strict=True):
        assert bucket["account"] == report.account.to_attributes()
    assert run_command("verify", path).returncode == 0
    plan = run_command("recover", path, "--dry-run")
    assert plan.stdout.count("recover to the end of batch") == 2
    listed = run_command("log", path, "--kind", "results", "--records", "--json")
    results = sum(report.results.num_rows for batch in logs.reports for report in batch)
    assert listed.stdout.count("\n") == results > 0
    assert run_command("merge", path).returncode == 0
    assert run_command("trim", path, "--before-batch", 4).returncode == 0
    assert run_command("truncate", path, "--to-batch", 9, "--yes").returncode == 0
    assert run_command("verify", path).returncode == 0
    assert json.loads(run_command("status", path, "--json").stdout)["last_batch"] == 9


def test_a_flipped_byte_is_found_with_its_file(logs: Written) -> None:
    name = f"in/00001/{logs.newest:020d}.seg"
    logs.flip(name)
    done = run_command("verify", logs.path)
    assert done.returncode == 1
    assert f"{name}: damaged" in done.stdout
    assert "next: A recovery needs it." in done.stdout


def test_a_path_without_logs_gives_one_line_and_code_2(tmp_path: Path) -> None:
    done = run_command("status", tmp_path / "nothing")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.count("\n") == 1
    assert not (tmp_path / "nothing").exists()


def test_head_ends_a_listing_quietly(logs: Written) -> None:
    command = f"'{COMMAND}' log '{logs.path}' --records | head -n 2"
    done = subprocess.run(
        ["/bin/sh", "-c", command], check=True, capture_output=True, text=True, timeout=PATIENCE_S
    )
    assert done.stdout.count("\n") == 2
    assert done.stderr == ""


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_logs_of_somebody_else_give_one_line_and_code_2(logs: Written) -> None:
    logs.path.chmod(0)
    try:
        done = run_command("status", logs.path)
    finally:
        logs.path.chmod(0o755)
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1


def test_a_round_through_the_commands_on_a_written_stream(tmp_path: Path) -> None:
    stream = stored_at(tmp_path / "orders", 70, buckets=1)
    path = stream.path
    register(stream.storage, "billing", Stream.BATCHES, 20)
    status = run_command("status", path)
    assert (status.returncode, status.stderr) == (0, "")
    assert "batches 0 to 69, written " in status.stdout
    found = json.loads(run_command("status", path, "--json").stdout)
    assert found["held"]["rows"] == found["total"]["rows"] == 70 * ROWS
    assert (found["readers"][0]["lag"], found["readers"][0]["lag_rows"]) == (50, 50 * ROWS)
    listed = run_command("log", path, "--records", "--json", "--batch", "3:4")
    rows = [json.loads(line)["row"]["price"] for line in listed.stdout.splitlines()]
    assert sorted(rows) == [row["price"] for batch in (3, 4) for row in rows_of(batch)]
    assert run_command("merge", path).returncode == 0
    held = run_command("trim", path, "--before-batch", 60)
    assert "reader billing needs batch 20 and later" in held.stdout
    assert run_command("readers", path, "--forget", "billing", "--yes").returncode == 0
    assert run_command("trim", path, "--before-batch", 60).returncode == 0
    assert json.loads(run_command("status", path, "--json").stdout)["oldest_batch"] == 60
    verified = run_command("verify", path)
    assert (verified.returncode, verified.stderr) == (0, "")
    for refused in (("recover", "--dry-run"), ("truncate", "--to-batch", 65, "--yes")):
        done = run_command(refused[0], path, *refused[1:])
        assert (done.returncode, done.stdout) == (2, "")
        assert done.stderr.count("\n") == 1
    stream.run(1)
    lost = read_manifest(stream.files.log, 65).files[0].path
    stream.flip(lost)
    verified = run_command("verify", path)
    assert verified.returncode == 1
    assert f"{lost}: damaged" in verified.stdout
    assert f"trailmark trim {path} --before-batch 66" in verified.stdout
    assert run_command("trim", path, "--before-batch", 66).returncode == 0
    assert run_command("verify", path).returncode == 0


# Beside a writer


def _write_on(pipe: Pipe, place: Place, first: int) -> None:
    """Runs batches one after another until it is told to stop; tells how far it came."""
    buckets = [place.bucket(number) for number in range(place.buckets)]
    batch = first
    pipe.send("ready")
    until = pipe.recv()
    while batch < until:
        rows = place.case.batches[batch % len(place.case.batches)]
        for bucket, part in zip(buckets, place.case.split(rows, place.buckets), strict=True):
            bucket.run(batch, part)
        batch += 1
        time.sleep(0.01)
    pipe.send(batch - 1)
    for bucket in buckets:
        bucket.close()


def test_watching_beside_a_running_writer_follows_it_and_ends_with_ctrl_c(tmp_path: Path) -> None:
    place = Place(tmp_path / "orders", count_orders(), Continuous(q=25, u=40), buckets=2)
    with Worker(_write_on, place, 0) as writer:
        assert writer.receive() == "ready"
        writer.send(150)
        while not (place.path / "out" / "00001" / f"{0:020d}.seg").exists():
            time.sleep(0.01)
        watch = subprocess.Popen(
            [COMMAND, "status", place.path, "--watch", "0.05", "--json"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        last = writer.receive()
        writer.finish()
    assert watch.stdout is not None
    seen: list[dict[str, Any]] = []
    for line in watch.stdout:
        seen.append(json.loads(line))
        if seen[-1]["last_batch"] == last and seen[-1]["whole_batch"] == last:
            break
    watch.send_signal(signal.SIGINT)
    _, errors = watch.communicate(timeout=PATIENCE_S)
    assert (watch.returncode, errors) == (0, "")
    batches = [each["last_batch"] for each in seen]
    assert batches == sorted(batches)
    assert len(set(batches)) > 3, "it has seen the writer at work"
    for each in seen:
        for bucket in each["buckets"]:
            assert not bucket["problem"]
            footer, _ = place.logs().output(bucket["bucket"]).read_footer(bucket["last_batch"])
            assert bucket["account"]["inputs_total"] == footer.attributes["inputs_total"]


def test_looking_on_does_not_disturb_the_writer(tmp_path: Path) -> None:
    """Two queries over the same rows; one of them is looked at all the time."""
    # Trimmed at once: which spares a thread beside the batches has ready is a matter of time.
    places = [
        Place(tmp_path / name, count_orders(), Continuous(q=25, u=40), buckets=2, beside=AtOnce())
        for name in ("watched", "alone")
    ]
    for place in places:
        with Worker(_write_on, place, 0) as writer:
            writer.receive()
            writer.send(60)
            is_watched = place.path.name == "watched"
            while is_watched and not (place.path / "out" / "00001").exists():
                time.sleep(0.01)
            for command in (("status",), ("verify",), ("log", "--records"), ("status",)):
                if is_watched:
                    done = run_command(command[0], place.path, *command[1:])
                    assert (done.returncode, done.stderr) == (0, "")
            assert writer.receive() == 59
            writer.finish()
    names = [
        sorted(str(each.relative_to(place.path)) for each in place.path.rglob("*"))
        for place in places
    ]
    assert names[0] == names[1]
    assert run_command("verify", places[0].path).returncode == 0


# In an object store


def _objects(url: str) -> dict[str, str]:
    listed = boto3.client("s3").list_objects_v2(Bucket=url.split("/")[2])
    return {each["Key"]: each["ETag"] for each in listed.get("Contents", [])}


def test_all_of_it_works_in_an_object_store(s3_url: str) -> None:
    case = time_orders(8)
    operators = OperatorLogs(open_storage(s3_url), case.operator(), buckets=1)
    bucket = Bucket(case.operator(), operators, 0, Continuous(q=25, u=40))
    reports = [bucket.run(batch, rows) for batch, rows in enumerate(case.batches)]
    bucket.close()
    before = _objects(s3_url)
    found = json.loads(run_command("status", s3_url, "--json").stdout)
    assert found["buckets"][0]["account"] == reports[-1].account.to_attributes()
    assert run_command("verify", s3_url).returncode == 0
    listed = run_command("log", s3_url, "--kind", "results", "--records").stdout.splitlines()
    assert len(listed) == sum(report.results.num_rows for report in reports)
    assert run_command("recover", s3_url, "--dry-run").returncode == 0
    assert _objects(s3_url) == before, "looking changes nothing"
    assert run_command("truncate", s3_url, "--to-batch", 6, "--yes").returncode == 0
    assert json.loads(run_command("status", s3_url, "--json").stdout)["last_batch"] == 6
    assert any("/aside/out/00000/" in key for key in _objects(s3_url))


def test_an_object_store_without_logs_gives_one_line_and_code_2(s3_url: str) -> None:
    done = run_command("status", s3_url)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.count("\n") == 1
    assert "it is empty" in done.stderr
    open_storage(f"{s3_url}/one").publish("meta.json", [b"x"])
    open_storage(f"{s3_url}/two").publish("meta.json", [b"x"])
    done = run_command("status", s3_url)
    assert f"{s3_url}/one, {s3_url}/two" in done.stderr
    done = run_command("status", "s3://nowhere-at-all/x")
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
