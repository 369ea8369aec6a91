"""What Spark has committed, by its own commit log."""

from __future__ import annotations

import json
import logging
import os
import random
import shutil
from pathlib import Path

import pytest

from tests.support.orders import count_case, random_orders
from trailmark.checkpoint.policy import Continuous
from trailmark.engine import Bucket, OperatorLogs
from trailmark.engine.commits import mark_committed
from trailmark.engine.spark_commits import QUERY, SparkCommits, record_checkpoint
from trailmark.inspection import read_status
from trailmark.log import LocalStorage, OperatorMeta
from trailmark.records import NO_BATCH
from trailmark.streams.operator_view import OperatorView
from trailmark.testing.disk import SimulatedDisk

_ID = "45406f56-0449-4b5c-89b7-65520946993d"


class Checkpoint:
    """A checkpoint as Spark writes it."""

    def __init__(self, place: Path, query_id: str = _ID) -> None:
        self.place = place
        (place / "commits").mkdir(parents=True)
        (place / "metadata").write_text(json.dumps({"id": query_id}))

    @property
    def root(self) -> str:
        """As Spark spells it."""
        return f"file:{self.place}"

    def commit(self, batch: int) -> None:
        (self.place / "commits" / f".{batch}.crc").write_bytes(b"crc\0")
        (self.place / "commits" / f".{batch}.0f8f.tmp").write_bytes(b"v1\n{")
        (self.place / "commits" / str(batch)).write_text('v1\n{"nextBatchWatermarkMs":0}')


class Operator:
    """The logs of a query with two buckets."""

    def __init__(self, path: Path) -> None:
        self.storage = LocalStorage(path)
        orders = random_orders(random.Random(3), batches=5, rows=20, items=4)
        self.case = count_case(orders)
        self.logs = OperatorLogs(self.storage, self.case.operator(), buckets=2, query_id=_ID)

    @property
    def meta(self) -> OperatorMeta:
        return self.logs.meta

    def run(self, batch: int, buckets: int = 2) -> None:
        for number in range(buckets):
            bucket = Bucket(self.case.operator(), self.logs, number, Continuous(u=40))
            bucket.run(batch, self.case.batches[batch])
            bucket.close()


@pytest.fixture
def operator(tmp_path: Path) -> Operator:
    return Operator(tmp_path / "log")


@pytest.mark.parametrize("name", ["checkpoint", "a b", "50%20off", "ü#?"])
def test_a_batch_is_committed_when_its_file_is_in_the_checkpoint(
    operator: Operator, tmp_path: Path, name: str
) -> None:
    checkpoint = Checkpoint(tmp_path / name)
    record_checkpoint(operator.storage, _ID, checkpoint.root)
    commits = SparkCommits(operator.storage, operator.meta)
    assert (commits.has(3), commits.problem) == (False, "")
    checkpoint.commit(3)
    assert (commits.has(3), commits.problem) == (True, "")
    assert (commits.has(4), commits.problem) == (False, "")


def test_a_commit_that_a_power_failure_has_emptied_is_none(
    operator: Operator, tmp_path: Path
) -> None:
    checkpoint = Checkpoint(tmp_path / "checkpoint")
    record_checkpoint(operator.storage, _ID, checkpoint.root)
    (checkpoint.place / "commits" / "0").touch()
    assert not SparkCommits(operator.storage, operator.meta).has(0)


def test_a_checkpoint_that_is_used_again_says_nothing(operator: Operator, tmp_path: Path) -> None:
    checkpoint = Checkpoint(tmp_path / "checkpoint")
    record_checkpoint(operator.storage, _ID, checkpoint.root)
    commits = SparkCommits(operator.storage, operator.meta)
    assert not commits.has(0)
    shutil.rmtree(checkpoint.place)
    other = Checkpoint(tmp_path / "checkpoint", "a2f7d8b1-3a27-4bd0-a972-d2c5012b4dbb")
    other.commit(0)
    assert not commits.has(0), "while it was looked at"
    other.commit(1)
    assert not commits.has(1)
    assert commits.problem.endswith("checkpoint is that of another query")


@pytest.mark.parametrize(
    ("place", "problem"),
    [
        ("file:/nowhere/at/all", "its checkpoint file:/nowhere/at/all is not there"),
        ("hdfs://host:8020/checkpoint", "hdfs://host:8020/checkpoint cannot be read"),
        ("dbfs:/checkpoint", "its checkpoint dbfs:/checkpoint"),
    ],
)
def test_a_checkpoint_that_cannot_be_read_is_named(
    operator: Operator, place: str, problem: str
) -> None:
    record_checkpoint(operator.storage, _ID, place)
    commits = SparkCommits(operator.storage, operator.meta)
    assert not commits.has(0)
    assert problem in commits.problem


@pytest.mark.parametrize("text", [b"", b"{}", b"[1]", b'{"body": {}, "crc32": 0}'])
def test_a_record_that_is_damaged_is_as_good_as_none(operator: Operator, text: bytes) -> None:
    operator.storage.replace(QUERY, [text])
    commits = SparkCommits(operator.storage, operator.meta)
    assert not commits.has(0)
    assert commits.problem == "it is not known where its checkpoint is"
    record_checkpoint(operator.storage, _ID, "file:/checkpoint")
    assert not commits.has(1)
    assert "file:/checkpoint" in commits.problem


def test_a_checkpoint_in_an_object_store_is_found_as_hadoop_names_it(
    operator: Operator, s3_url: str
) -> None:
    from trailmark.log import open_storage

    checkpoint = open_storage(f"{s3_url}/checkpoint")
    checkpoint.publish("metadata", [json.dumps({"id": _ID}).encode()])
    checkpoint.publish("commits/7", [b"v1\n{}"])
    record_checkpoint(operator.storage, _ID, f"{s3_url}/checkpoint".replace("s3:", "s3a:"))
    commits = SparkCommits(operator.storage, operator.meta)
    assert commits.has(7)
    assert not commits.has(8)


def test_a_view_ends_with_what_spark_has_committed(operator: Operator, tmp_path: Path) -> None:
    checkpoint = Checkpoint(tmp_path / "checkpoint")
    record_checkpoint(operator.storage, _ID, checkpoint.root)
    view = OperatorView(operator.storage, "results")
    for batch in range(3):
        operator.run(batch, buckets=1)
        assert (view.end(), read_status(operator.storage).committed) == (batch, batch - 1)
        operator.run(batch)
        assert (view.end(), read_status(operator.storage).committed) == (batch, batch - 1)
        checkpoint.commit(batch)
        assert (view.end(), read_status(operator.storage).committed) == (batch + 1, batch)


def test_a_batch_that_a_bucket_lacks_is_not_read_though_spark_has_committed_it(
    operator: Operator, tmp_path: Path
) -> None:
    checkpoint = Checkpoint(tmp_path / "checkpoint")
    record_checkpoint(operator.storage, _ID, checkpoint.root)
    operator.run(0, buckets=1)
    checkpoint.commit(0)
    assert OperatorView(operator.storage, "results").end() == 0
    assert read_status(operator.storage).committed == NO_BATCH


def test_a_view_says_once_what_it_leaves_out(
    operator: Operator, caplog: pytest.LogCaptureFixture
) -> None:
    view = OperatorView(operator.storage, "results")
    operator.run(0)
    assert (view.end(), view.end()) == (0, 0)
    assert [record.levelno for record in caplog.records] == [logging.WARNING]
    assert "batch 0 of query " + _ID + " is left out" in caplog.text
    assert "not known where its checkpoint is" in read_status(operator.storage).in_doubt
    mark_committed(operator.storage, 0, "a run")
    assert view.end() == 1
    assert read_status(operator.storage).in_doubt == ""


def test_who_asks_again_reads_one_file_a_time_and_none_in_the_end(tmp_path: Path) -> None:
    checkpoint = Checkpoint(tmp_path / "checkpoint")
    disk = SimulatedDisk()
    record_checkpoint(disk.storage(), _ID, checkpoint.root)
    orders = random_orders(random.Random(3), batches=1, rows=1, items=1)
    operator = count_case(orders).operator()
    meta = OperatorLogs(disk.storage(), operator, buckets=1, query_id=_ID).meta
    commits = SparkCommits(disk.storage(), meta)
    assert not commits.has(0)
    calls = disk.calls
    assert not commits.has(0)
    checkpoint.commit(0)
    assert commits.has(0)
    os.remove(checkpoint.place / "commits" / "0")
    assert commits.has(0)
    assert disk.calls == calls, "where the checkpoint is, is read once for every batch"


def test_a_checkpoint_that_could_not_be_read_for_a_moment_is_looked_at_again(
    operator: Operator, tmp_path: Path
) -> None:
    checkpoint = Checkpoint(tmp_path / "checkpoint")
    checkpoint.commit(3)
    now_us = [0.0]
    commits = SparkCommits(operator.storage, operator.meta, lambda: now_us[0])
    assert not commits.has(3)
    assert "not known" in commits.problem
    record_checkpoint(operator.storage, _ID, checkpoint.root)
    assert not commits.has(3), "not a hundred times a second"
    now_us[0] += 1_000_000
    assert (commits.has(3), commits.problem) == (True, "")
