from __future__ import annotations

import sys
from pathlib import Path

import pytest

from trailmark.errors import SettingError
from trailmark.log import LocalStorage, open_storage
from trailmark.log.names import (
    LogFile,
    log_directory,
    mark_name,
    pack_name,
    parse_mark,
    parse_name,
    segment_name,
)
from trailmark.log.storage.object_store import ObjectStorage
from trailmark.records import Stream
from trailmark.settings import LogSettings


def test_names_are_computed_and_parsed_back() -> None:
    assert log_directory(Stream.INPUT, 0) == "in/00000"
    assert log_directory(Stream.OUTPUT, 99_999) == "out/99999"
    assert parse_name(segment_name(12), 5) == LogFile("00000000000000000012.seg", 12, 12, 5)
    assert parse_name(pack_name(3, 9), 7) == LogFile(
        "00000000000000000003-00000000000000000009.pack", 3, 9, 7
    )
    assert mark_name(12) == "00000000000000000012.trim"
    assert parse_mark(mark_name(12)) == 12
    assert parse_mark(mark_name(2**63 - 1)) == 2**63 - 1


def test_names_sort_as_batches_do() -> None:
    batches = [0, 9, 10, 99, 100, 2**40, 2**63 - 1]
    names = [segment_name(batch) for batch in batches]
    assert sorted(names) == names


@pytest.mark.parametrize(
    "name",
    [
        "index.json",
        "12.seg",
        "0000000000000000001\u0662.seg",
        "00000000000000000012.seg.1",
        "99999999999999999999.seg",
        "00000000000000000009-00000000000000000003.pack",
        "00000000000000000003-00000000000000000003.pack",
        "00000000000000000003-00000000000000000009.seg",
        "00000000000000000003.pack",
        "00000000000000000003.trim",
    ],
)
def test_other_files_are_not_taken_for_segments(name: str) -> None:
    assert parse_name(name, 1) is None


@pytest.mark.parametrize(
    "name",
    [
        "12.trim",
        "0000000000000000001\u0662.trim",
        "00000000000000000012.seg",
        "00000000000000000012.trim.1",
        "99999999999999999999.trim",
        "00000000000000000003-00000000000000000009.trim",
    ],
)
def test_other_files_are_not_taken_for_marks(name: str) -> None:
    assert parse_mark(name) is None


@pytest.mark.parametrize("form", ["{}", "file://{}", "file:{}", "file://localhost{}", "FILE://{}"])
def test_paths_and_file_urls_are_local(tmp_path: Path, form: str) -> None:
    storage = open_storage(form.format(tmp_path / "a b#1"))
    assert isinstance(storage, LocalStorage)
    storage.publish("x", [b"y"])
    assert (tmp_path / "a b#1" / "x").read_bytes() == b"y"


def test_a_path_object_and_an_escaped_url_are_local(tmp_path: Path) -> None:
    open_storage(tmp_path / "one").publish("x", [b"y"])
    open_storage(f"file://{tmp_path}/t%20wo").publish("x", [b"y"])
    assert (tmp_path / "one/x").exists()
    assert (tmp_path / "t wo/x").exists()


@pytest.mark.parametrize(
    "url",
    [
        "",
        "ftp://host/x",
        "hdfs://x/y",
        "file://otherhost/x",
        "file:relative",
        "s3://",
        "a\0b",
    ],
)
def test_anything_else_is_refused(url: str) -> None:
    with pytest.raises(SettingError, match="names no storage"):
        open_storage(url)


@pytest.mark.parametrize(
    ("url", "fix"),
    [
        ("s3:/bucket/x", "two slashes"),
        ("S3:/bucket/x", "two slashes"),
        ("s3a://bucket/x", "s3://bucket/prefix"),
        ("gs:/bucket/x", "two slashes"),
        ("abfss://container@account.dfs.core.windows.net/x", "az://container/prefix"),
        ("wasbs://container@account.blob.core.windows.net/x", "az://container/prefix"),
        ("dbfs:/data/x", "/dbfs/data/orders"),
        ("hdfs:/data/x", "write ./hdfs:/data/x"),
        (" s3://bucket/x", "two slashes"),
    ],
)
def test_a_url_that_cannot_be_used_is_no_directory(
    url: str, fix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SettingError, match="names no storage") as refused:
        open_storage(url)
    assert fix in refused.value.fix


@pytest.mark.parametrize("name", ["a:b", "./s3:/x", "C:/x", "12:30", "a:b/c", ":/x", "user@host?x"])
def test_a_directory_may_have_a_colon_in_its_name(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    open_storage(name).publish("x", [b"y"])
    assert (tmp_path / name / "x").read_bytes() == b"y"


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("s3://AKIA:SECRET@bucket/x", "s3://***@bucket/x"),
        ("S3://AKIA:SEC/RET@bucket/x", "S3://***@bucket/x"),
        ("s3://SECRET@bucket/x", "s3://***@bucket/x"),
        ("s3://AKIA:SECRET/bucket", "s3://***/bucket"),
        ("s3://bucket/x?secret=SECRET", "s3://bucket/x?***"),
        ("s3://bucket/x?secret=SECRET@SECRET", "s3://bucket/x?***"),
        ("s3://AKIA:SEC?RET@bucket/x", "s3://***?***"),
        ("s3:/AKIA:SECRET@bucket", "s3:/***@bucket"),
        ("az://account:SECRET@container/x", "az://***@container/x"),
        ("gs://bucket/x?key=SECRET", "gs://bucket/x?***"),
        ("hdfs://me:SECRET@host:8020/x", "hdfs://***@host:8020/x"),
        ("https://host/x?token=SECRET", "https://host/x?***"),
    ],
)
def test_a_secret_in_a_url_is_refused_and_not_repeated(url: str, shown: str) -> None:
    with pytest.raises(SettingError) as refused:
        open_storage(url)
    assert repr(shown) in refused.value.what
    for secret in ("SECRET", "AKIA", "SEC", "RET"):
        assert secret not in str(refused.value).replace("AWS_SECRET_ACCESS_KEY", "")


def test_a_store_that_was_never_tried_is_warned_of_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("trailmark.log.storage.object_client._warned", set())
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_NAME", "account")
    for url in ("gs://bucket/one", "gs://bucket/two", "az://container/x", "s3://bucket/x"):
        open_storage(url)
    (record,) = caplog.records
    assert "gs:// is experimental" in record.getMessage()


def test_opening_touches_nothing(tmp_path: Path) -> None:
    open_storage(tmp_path / "new", LogSettings())
    assert list(tmp_path.iterdir()) == []


def test_without_obstore_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "obstore", None)
    with pytest.raises(SettingError) as caught:
        open_storage("s3://bucket/prefix")
    assert caught.value.fix == "pip install 'trailmark[object-store]'"
    with pytest.raises(SettingError):
        ObjectStorage(None)  # type: ignore[arg-type]
