"""Streams in a real (if small) S3 server."""

from __future__ import annotations

import threading

import pytest

from tests.support.streams import (
    ORDERS,
    SECOND,
    SetClock,
    Written,
    batch_of,
    often,
    orders,
    plain,
    rows_by_batch,
)
from trailmark.errors import MissingSegment, SettingError
from trailmark.log import open_storage
from trailmark.log.readers import acknowledge, forget, needed_from, register
from trailmark.records import NO_BATCH, Stream
from trailmark.streams.description import open_stream
from trailmark.streams.retention import Retention, left_over_files, trim_stream
from trailmark.streams.table import read_table
from trailmark.streams.times import Span
from trailmark.streams.view import open_view
from trailmark.streams.writer import StreamWriter


def _written(url: str) -> Written:
    storage = open_storage(url)
    return Written(storage, open_stream(storage, ORDERS, time_column="time"), SetClock())


def test_a_stream_is_written_read_and_followed(s3_url: str) -> None:
    stream = _written(s3_url)
    view = open_view(open_storage(s3_url))
    for batch in range(4):
        assert view.end() == batch
        assert stream.add(orders(batch), "query", batch) == batch
    assert stream.add(orders(3), "query", 3) == NO_BATCH
    assert view.end() == 4
    everything = [row for batch in range(4) for row in orders(batch)]
    assert plain(read_table(s3_url)) == everything
    some = read_table(s3_url, columns=["price"], starting_batch=1, ending_batch=1)
    assert some.to_pydict() == {"price": [10, 11, 12]}
    late = read_table(s3_url, starting_timestamp="1970-01-01 00:00:21")
    assert plain(late) == everything[7:]
    assert view.find(25 * SECOND) == 3
    with pytest.raises(SettingError, match="8 buckets"):
        open_stream(open_storage(s3_url), ORDERS, buckets=8)


def test_of_two_who_commit_at_once_both_commit_and_each_once(s3_url: str) -> None:
    stream = _written(s3_url)
    places: list[int] = []
    failures: list[BaseException] = []

    def commit(me: int) -> None:
        try:
            storage = open_storage(s3_url)
            for number in range(5):
                writer = StreamWriter(storage, stream.meta)
                rows = [(f"{me}", number, 0)]
                places.append(writer.commit(writer.write([batch_of(rows)]), f"query {me}", number))
        except BaseException as error:  # noqa: BLE001 - told to the test, which raises it
            failures.append(error)

    threads = [threading.Thread(target=commit, args=(me,)) for me in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert sorted(places) == list(range(10))
    found = sorted((item, number) for item, number, _ in stream.rows())
    assert found == [(f"{me}", number) for me in range(2) for number in range(5)]
    assert stream.log().verify().problems == []


def test_readers_keep_what_they_need_and_the_rest_is_trimmed(s3_url: str) -> None:
    stream = _written(s3_url)
    with often(trim=100, merge=100):
        for batch in range(6):
            stream.add(orders(batch))
    stream.log().merge(1)
    register(stream.storage, "billing", Stream.BATCHES, 3)
    retention = Retention(batches=1)
    dead = stream.write(orders(9))
    for needs, oldest in ((3, 3), (4, 4)):
        acknowledge(stream.storage, "billing", Stream.BATCHES, needs)
        assert needed_from(open_storage(s3_url), Stream.BATCHES) == needs
        trim_stream(stream.storage, stream.log(), retention, 0)
        assert open_view(open_storage(s3_url)).oldest() == oldest
        kept = {batch: orders(batch) for batch in range(oldest, 6)}
        assert rows_by_batch(open_storage(s3_url)) == kept
    with pytest.raises(MissingSegment):
        list(open_view(open_storage(s3_url)).batches(3, 6, Span()))
    assert forget(stream.storage, "billing")
    trim_stream(stream.storage, stream.log(), retention, 0)
    found = left_over_files(stream.storage, stream.meta, stream.log(), stream.clock.now_us + 1)
    assert found == [file.path for file in dead]
    stream.writer().discard(dead)
    assert len(stream.storage.list("data/00000")) == 1
    assert plain(read_table(s3_url)) == orders(5)
