"""Logs in Azure's object store, or rather in its emulator, through the same client."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.support.logs import append, fill, open_log
from tests.support.written import time_orders
from trailmark.checkpoint.policy import Continuous
from trailmark.engine import Bucket, OperatorLogs
from trailmark.errors import NoPermission, StorageError, Unreachable
from trailmark.inspection import read_status
from trailmark.inspection.logs import OperatorFiles
from trailmark.inspection.verify import verify_operator
from trailmark.log import Storage, open_storage
from trailmark.upkeep import merge_operator, trim_operator


@pytest.fixture
def storage(azure_url: str) -> Storage:
    return open_storage(azure_url)


def test_of_many_that_publish_a_name_at_once_one_wins(azure_url: str) -> None:
    def publish(number: int) -> bool:
        return open_storage(azure_url).publish("in/a.seg", [b"%d" % number])

    with ThreadPoolExecutor(8) as threads:
        won = list(threads.map(publish, range(8)))
    assert won.count(True) == 1
    assert bytes(open_storage(azure_url).read("in/a.seg")) == b"%d" % won.index(True)


def test_a_log_is_appended_merged_and_trimmed(storage: Storage) -> None:
    log = open_log(storage)
    links = fill(log, 6)
    assert log.merge(3).packs
    assert not log.verify().problems
    log.trim(4)
    append(open_log(storage), 6, links[-1])
    assert open_log(storage).batches() == [4, 5, 6]
    assert not open_log(storage).verify().problems


def test_an_operator_goes_on_after_a_crash(storage: Storage, azure_url: str) -> None:
    case = time_orders(8)
    expected = []
    for batch, rows in enumerate(case.batches):
        # Each batch by a process that has nothing but the logs.
        logs = OperatorLogs(open_storage(azure_url), case.operator(), buckets=1)
        bucket = Bucket(case.operator(), logs, 0, Continuous(q=25, u=40))
        report = bucket.run(batch, rows)
        again = bucket.run(batch, rows)
        assert again.results.equals(report.results)
        expected.append(report.account.to_attributes())
        bucket.close()
    status = read_status(storage)
    assert status.buckets[0].account is not None
    assert status.buckets[0].account.to_attributes() == expected[-1]
    assert status.recovery is not None
    files = OperatorFiles(storage)
    trim_operator(files, 4)
    merge_operator(files)
    assert verify_operator(storage).is_whole


def test_what_goes_wrong_is_said(
    storage: Storage, azure_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    nowhere = open_storage("az://no-such-container/x")
    with pytest.raises(StorageError, match="has no such bucket"):
        nowhere.publish("a", [b"x"])
    with monkeypatch.context() as patch:
        patch.setenv("AZURE_STORAGE_ACCOUNT_KEY", "d3Jvbmc=")
        with pytest.raises(NoPermission):
            open_storage(azure_url).read("a")
    monkeypatch.setenv("AZURE_STORAGE_ENDPOINT", "http://127.0.0.1:1/devstoreaccount1")
    monkeypatch.setattr("trailmark.log.storage.object_client._RETRIES", {"max_retries": 0})
    with pytest.raises(Unreachable):
        open_storage(azure_url).list("")
