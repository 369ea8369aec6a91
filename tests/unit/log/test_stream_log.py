from __future__ import annotations

import random

import pyarrow as pa
import pytest

from tests.support.logs import LOG_ID, OTHER_ID, append, fill, open_log, rows_of
from trailmark.errors import (
    DamagedSegment,
    DiskFull,
    MissingSegment,
    OtherQuery,
    SettingError,
)
from trailmark.log import StreamLog
from trailmark.records import (
    NO_BATCH,
    START_OF_LOG,
    Fingerprint,
    FrameKind,
    SegmentLink,
    Stream,
)
from trailmark.settings import Compression, Durability, LogSettings
from trailmark.testing.disk import SimulatedDisk


@pytest.fixture
def disk() -> SimulatedDisk:
    return SimulatedDisk()


@pytest.fixture
def log(disk: SimulatedDisk) -> StreamLog:
    return open_log(disk.storage())


def test_what_was_appended_is_read_back(log: StreamLog) -> None:
    published = append(log, 0, START_OF_LOG)
    segment = log.read(0)
    assert published.created
    assert segment.table(FrameKind.INPUT) == rows_of(0)
    assert segment.link == published.link
    assert segment.footer.previous == START_OF_LOG
    assert segment.footer.attributes == {"N": 0}
    assert len(segment.data) == published.bytes


def test_files_are_named_by_stream_bucket_and_batch(disk: SimulatedDisk) -> None:
    append(open_log(disk.storage(), bucket=7), 12, START_OF_LOG)
    append(open_log(disk.storage(), stream=Stream.OUTPUT, bucket=0), 3, START_OF_LOG)
    assert disk.files() == [
        "in/00007/00000000000000000012.seg",
        "out/00000/00000000000000000003.seg",
    ]


def test_the_second_to_append_a_batch_learns_who_was_first(disk: SimulatedDisk) -> None:
    first = append(open_log(disk.storage()), 0, START_OF_LOG)
    second = append(open_log(disk.storage()), 0, START_OF_LOG, count=5)
    assert (second.created, second.link, second.bytes) == (False, first.link, 0)
    assert open_log(disk.storage()).read(0).table(FrameKind.INPUT) == rows_of(0)


def test_the_normal_append_lists_nothing_and_syncs_twice(
    disk: SimulatedDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = open_log(disk.storage())
    (link,) = fill(log, 1)
    syncs: list[str] = []
    monkeypatch.setattr(disk, "list_directory", lambda path: pytest.fail(f"lists {path}"))
    for name in ("sync", "sync_file", "sync_directory"):
        monkeypatch.setattr(disk, name, lambda _, name=name: syncs.append(name))
    append(log, 1, link)
    assert syncs == ["sync", "sync_directory"]


def test_a_log_knows_what_it_holds(log: StreamLog) -> None:
    assert (log.batches(), log.newest(), log.oldest()) == ([], NO_BATCH, NO_BATCH)
    fill(log, 3, first=5)
    assert (log.batches(), log.newest(), log.oldest()) == ([5, 6, 7], 7, 5)
    assert [log.contains(batch) for batch in (4, 5, 7, 8)] == [False, True, True, False]


def test_a_batch_that_is_not_there_is_missing(log: StreamLog) -> None:
    fill(log, 1)
    for look in (log.read, log.read_footer, log.settle):
        with pytest.raises(MissingSegment, match="Batch 9") as caught:
            look(9)
        assert caught.value.where == "in/00003/00000000000000000009.seg"


def test_a_footer_is_read_without_reading_the_rows(
    disk: SimulatedDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = open_log(disk.storage())
    published = append(log, 0, START_OF_LOG, count=100_000)
    read_bytes: list[int] = []
    real = disk.read

    def read(path: str, offset: int, length: int | None) -> tuple[memoryview, int]:
        answer = real(path, offset, length)
        read_bytes.append(len(answer[0]))
        return answer

    monkeypatch.setattr(disk, "read", read)
    footer, checksum = log.read_footer(0)
    assert (footer.rows, checksum) == ({FrameKind.INPUT: 100_000}, published.checksum)
    assert read_bytes == [4096]


def test_a_footer_larger_than_the_first_read_takes_a_second(log: StreamLog) -> None:
    attributes = {"windows": list(range(5_000))}
    log.append(0, [], previous=START_OF_LOG, fingerprint=Fingerprint(0, 0), attributes=attributes)
    assert log.read_footer(0)[0].attributes == attributes
    append(log, 1, log.read(0).link)
    log.merge(1)
    assert log.read_footer(0)[0].attributes == attributes


def test_a_segment_of_another_log_is_refused(disk: SimulatedDisk) -> None:
    fill(open_log(disk.storage()), 1)
    with pytest.raises(OtherQuery, match="log_id"):
        open_log(disk.storage(), log_id=OTHER_ID).read(0)
    with pytest.raises(OtherQuery, match="log_id"):
        open_log(disk.storage(), log_id=OTHER_ID).read_footer(0)


@pytest.mark.parametrize(
    ("source", "target", "expected"),
    [
        ("in/00003/00000000000000000000.seg", "in/00004/00000000000000000000.seg", OtherQuery),
        ("in/00003/00000000000000000000.seg", "out/00003/00000000000000000000.seg", OtherQuery),
        ("in/00003/00000000000000000000.seg", "in/00003/00000000000000000001.seg", DamagedSegment),
    ],
)
def test_a_file_copied_to_another_place_is_refused(
    disk: SimulatedDisk, source: str, target: str, expected: type[Exception]
) -> None:
    fill(open_log(disk.storage()), 1)
    disk.storage().publish(target, [disk.content(source)])
    stream = Stream.INPUT if target.startswith("in") else Stream.OUTPUT
    log = StreamLog(disk.storage(), stream, LOG_ID, int(target.split("/")[1]))
    for look in (log.read, log.read_footer):
        with pytest.raises(expected):
            look(int(target[-24:-4]))


@pytest.mark.parametrize(
    ("batch", "previous"), [(0, SegmentLink(0, 1)), (3, SegmentLink(5, 1)), (2**63, START_OF_LOG)]
)
def test_a_batch_follows_an_earlier_one(log: StreamLog, batch: int, previous: SegmentLink) -> None:
    with pytest.raises(SettingError, match="cannot follow"):
        log.append(batch, [], previous=previous, fingerprint=Fingerprint(0, 0))
    assert log.batches() == []


def test_a_bucket_that_has_no_name_is_refused(disk: SimulatedDisk) -> None:
    with pytest.raises(SettingError, match="Bucket"):
        open_log(disk.storage(), bucket=100_000)


def test_a_full_disk_leaves_the_log_as_it_was_and_the_append_can_be_repeated(
    disk: SimulatedDisk,
) -> None:
    log = open_log(disk.storage())
    (link,) = fill(log, 1)
    before = disk.files()
    disk.capacity = len(disk.content(before[0])) + 100
    with pytest.raises(DiskFull):
        append(log, 1, link)
    assert disk.files() == before
    disk.capacity = None
    assert append(log, 1, link).created
    assert log.verify().is_whole


def test_a_segment_that_another_process_left_unsynced_can_be_settled(disk: SimulatedDisk) -> None:
    fill(open_log(disk.storage(Durability.UNSYNCED)), 2)
    disk.kill()
    log = open_log(disk.storage())
    for batch in log.batches():
        log.settle(batch)
    disk.crash(random.Random(1))
    assert open_log(disk.storage()).batches() == [0, 1]
    assert open_log(disk.storage()).verify().is_whole


def test_compression_is_a_setting(disk: SimulatedDisk) -> None:
    sizes = {}
    codecs: list[Compression] = ["lz4", "zstd", "none"]
    for bucket, compression in enumerate(codecs):
        settings = LogSettings(compression=compression)
        log = open_log(disk.storage(), bucket=bucket, settings=settings)
        sizes[compression] = append(log, 0, START_OF_LOG, count=10_000).bytes
        assert log.read(0).table(FrameKind.INPUT) == rows_of(0, 10_000)
    assert sizes["zstd"] < sizes["lz4"] < sizes["none"]


def test_a_table_in_many_chunks_is_one_table_again(log: StreamLog) -> None:
    table = pa.concat_tables([rows_of(1), rows_of(2), rows_of(3)])
    log.append(0, [(FrameKind.INPUT, table)], previous=START_OF_LOG, fingerprint=Fingerprint(9, 0))
    assert log.read(0).table(FrameKind.INPUT) == table
