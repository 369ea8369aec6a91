"""The footers of all buckets are read at the same time, and come in their order."""

from __future__ import annotations

import threading
import uuid

import pytest

from trailmark.engine.footers import read_footers
from trailmark.errors import MissingSegment
from trailmark.log import Footer, StreamLog
from trailmark.records import START_OF_LOG, Fingerprint, Stream
from trailmark.testing.disk import SimulatedDisk

_PATIENCE_S = 60.0
_LOG_ID = uuid.UUID(int=3)


def _logs(count: int) -> list[StreamLog]:
    storage = SimulatedDisk().storage()
    logs = [StreamLog(storage, Stream.OUTPUT, _LOG_ID, bucket) for bucket in range(count)]
    for log in logs:
        log.append(0, [], previous=START_OF_LOG, fingerprint=Fingerprint(0, 0))
    return logs


@pytest.mark.parametrize("count", [1, 4, 5, 40])
def test_footers_come_in_the_order_of_the_buckets(count: int) -> None:
    assert [each.identity.bucket for each in read_footers(_logs(count), 0)] == list(range(count))


def test_sixteen_are_read_at_the_same_time() -> None:
    together = threading.Barrier(16)

    def read(log: StreamLog, batch: int) -> Footer:
        together.wait(_PATIENCE_S)
        return log.read_footer(batch)[0]

    assert len(read_footers(_logs(32), 0, read)) == 32


@pytest.mark.parametrize("count", [3, 20])
def test_one_that_is_missing_is_missed(count: int) -> None:
    logs = _logs(count)
    logs.append(StreamLog(logs[0].reader.storage, Stream.OUTPUT, _LOG_ID, count))
    with pytest.raises(MissingSegment, match=f"{count:05d}"):
        read_footers(logs, 0)
