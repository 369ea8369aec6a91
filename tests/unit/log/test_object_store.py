"""A real S3 client against a real (if small) S3 server."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from functools import partial

import boto3
import obstore
import pytest

from tests.support.logs import OTHER_ID, append, fill, open_log, rows_of
from trailmark.errors import (
    BatchGoesBackward,
    DamagedSegment,
    NoPermission,
    OtherQuery,
    StorageError,
    Unreachable,
)
from trailmark.log import Entry, Storage, open_storage
from trailmark.records import START_OF_LOG, FrameKind


@pytest.fixture
def storage(s3_url: str) -> Storage:
    return open_storage(s3_url)


def keys(url: str) -> list[str]:
    found = boto3.client("s3").list_objects_v2(Bucket=url.split("/")[2])
    return [each["Key"] for each in found.get("Contents", [])]


def test_the_second_put_of_a_name_is_refused_by_the_store(storage: Storage, s3_url: str) -> None:
    assert storage.publish("in/00003/a.seg", [b"fir", memoryview(b"st")]) is True
    assert open_storage(s3_url).publish("in/00003/a.seg", [b"second"]) is False
    assert bytes(storage.read("in/00003/a.seg")) == b"first"
    assert keys(s3_url) == ["some/prefix/in/00003/a.seg"]


def test_ranges_tails_lists_and_deletes(storage: Storage) -> None:
    storage.publish("in/00003/a.seg", [b"abcdef"])
    storage.publish("in/00003/b.seg", [b"x"])
    storage.publish("in/00004/c.seg", [b"y"])
    assert bytes(storage.read("in/00003/a.seg", 2, 3)) == b"cde"
    assert bytes(storage.read("in/00003/a.seg", 4)) == b"ef"
    assert bytes(storage.read("in/00003/a.seg", 6)) == b""
    tail, size = storage.read_tail("in/00003/a.seg", 2)
    assert (bytes(tail), size) == (b"ef", 6)
    tail, size = storage.read_tail("in/00003/a.seg", 4096)
    assert (bytes(tail), size) == (b"abcdef", 6)
    assert storage.list("in/00003") == [Entry("a.seg", 6), Entry("b.seg", 1)]
    assert storage.list("in/00005") == []
    storage.delete("in/00003/a.seg")
    storage.delete("in/00003/a.seg")
    assert not storage.exists("in/00003/a.seg")
    with pytest.raises(FileNotFoundError):
        storage.read_tail("in/00003/a.seg", 10)


def test_set_aside_and_replace(storage: Storage) -> None:
    storage.replace("in/x", [b"1"])
    storage.replace("in/x", [b"2"])
    assert storage.set_aside("in/x") == "aside/in/x"
    storage.publish("in/x", [b"3"])
    assert storage.set_aside("in/x") == "aside/in/x.1"
    assert bytes(storage.read("aside/in/x")) == b"2"
    assert not storage.exists("in/x")


def test_a_log_lives_in_an_object_store(storage: Storage, s3_url: str) -> None:
    log = open_log(storage)
    links = fill(log, 8)
    assert append(open_log(open_storage(s3_url)), 3, links[2], count=9).link == links[3]
    log.merge(4)
    assert log.batches() == list(range(8))
    assert [segment.link for segment in log.read_from()] == links
    assert log.read(2).table(FrameKind.INPUT) == rows_of(2)
    assert log.read_footer(3)[1] == links[3].checksum
    trimmed = storage.read("in/00003/00000000000000000005.seg")
    log.trim(6)
    mark = Entry("00000000000000000006.trim", 0)
    assert mark in storage.list("in/00003")
    storage.publish("in/00003/00000000000000000005.seg", [trimmed])  # a trim that was interrupted
    assert log.batches() == [6, 7]
    assert not log.contains(5)
    assert log.verify().is_whole
    assert log.time_index().find(0) == 6
    with pytest.raises(BatchGoesBackward):
        append(open_log(open_storage(s3_url)), 2, links[1])
    with pytest.raises(OtherQuery):
        open_log(storage, log_id=OTHER_ID).read(7)


def test_a_damaged_tail_is_set_aside_in_an_object_store_too(storage: Storage) -> None:
    log = open_log(storage)
    links = fill(log, 3)
    path = "in/00003/00000000000000000002.seg"
    data = bytearray(storage.read(path))
    data[100] ^= 1
    storage.replace(path, [bytes(data)])
    with pytest.raises(DamagedSegment):
        log.read(2)
    report = log.repair()
    assert report.is_whole
    assert [action.deed for action in report.actions] == ["set aside", "rebuilt"]
    assert append(log, 2, links[1]).created


@pytest.mark.usefixtures("s3")
def test_a_missing_bucket_is_a_storage_error_not_a_missing_file() -> None:
    log = open_log(open_storage("s3://no-such-bucket-here/x"))
    with pytest.raises(StorageError, match="no such bucket") as caught:
        append(log, 0, START_OF_LOG)
    assert caught.value.where.startswith("s3://no-such-bucket-here/x/in/00003/")


def test_refused_credentials_are_no_permission(
    storage: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise obstore.exceptions.PermissionDeniedError("Access Denied\nand much more")

    monkeypatch.setattr(obstore, "put", refuse)
    with pytest.raises(NoPermission, match="Access Denied") as caught:
        storage.publish("in/x", [b"1"])
    assert "much more" not in caught.value.what


def test_a_store_that_does_not_answer_as_it_should_cannot_be_reached(
    storage: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise obstore.exceptions.GenericError("server returned 503")

    monkeypatch.setattr(obstore, "get", fail)
    storage.publish("in/x", [b"1"])
    for length in (None, 1):
        with pytest.raises(Unreachable, match="503"):
            storage.read("in/x", 0, length)


def test_of_many_who_publish_an_object_at_once_one_does(storage: Storage) -> None:
    """What everything rests on; the server of the tests has to keep it, too."""

    def publish(name: str, me: int) -> bool:
        return storage.publish(name, [f"{me}".encode()])

    with ThreadPoolExecutor(8) as pool:
        for name in (f"in/00000/{each}" for each in range(20)):
            created = list(pool.map(partial(publish, name), range(8)))
            assert created.count(True) == 1
            assert bytes(storage.read(name)) == f"{created.index(True)}".encode()
