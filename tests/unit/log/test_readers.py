from __future__ import annotations

import random
import shutil
from pathlib import Path

import pytest

from tests.support.processes import Place
from tests.support.written import count_orders, write_logs
from trailmark.checkpoint.policy import Continuous
from trailmark.errors import DamagedSegment, SettingError
from trailmark.inspection.logs import OperatorFiles
from trailmark.log import LocalStorage
from trailmark.log.readers import (
    Reader,
    acknowledge,
    check_reader_name,
    forget,
    needed_from,
    register,
    registered,
)
from trailmark.records import OPERATOR_STREAMS, Stream
from trailmark.testing.disk import Crashed, SimulatedDisk
from trailmark.upkeep.trim import trim_operator


def _now() -> int:
    return 5


def test_a_reader_is_known_from_its_registration_on() -> None:
    storage = SimulatedDisk().storage()
    assert registered(storage) == []
    assert needed_from(storage, Stream.BATCHES) is None
    assert register(storage, "billing", Stream.BATCHES, 7, _now)
    assert registered(storage) == [Reader("billing", Stream.BATCHES, 7, 5)]
    assert needed_from(storage, Stream.BATCHES) == 7


def test_a_reader_that_is_known_stays_where_it_was() -> None:
    storage = SimulatedDisk().storage()
    register(storage, "billing", Stream.BATCHES, 7, _now)
    assert not register(storage, "billing", Stream.BATCHES, 2)
    assert not register(storage, "billing", Stream.BATCHES, 9)
    assert registered(storage) == [Reader("billing", Stream.BATCHES, 7, 5)]


def test_the_name_of_the_reader_of_another_log_is_refused() -> None:
    """Else what one of the two acknowledges would let go what the other needs."""
    storage = SimulatedDisk().storage()
    register(storage, "billing", Stream.OUTPUT, 7, _now)
    with pytest.raises(SettingError, match="reads the output log") as caught:
        register(storage, "billing", Stream.INPUT, 0)
    assert caught.value.where == "reader"
    assert registered(storage) == [Reader("billing", Stream.OUTPUT, 7, 5)]


def test_an_acknowledgement_replaces_the_one_before() -> None:
    storage = SimulatedDisk().storage()
    register(storage, "billing", Stream.BATCHES, 7)
    for needs in (8, 20, 3):
        acknowledge(storage, "billing", Stream.BATCHES, needs, _now)
        assert registered(storage) == [Reader("billing", Stream.BATCHES, needs, 5)]


def test_a_reader_that_was_forgotten_is_known_again_when_it_acknowledges() -> None:
    storage = SimulatedDisk().storage()
    assert not forget(storage, "billing")
    register(storage, "billing", Stream.BATCHES, 7)
    assert forget(storage, "billing")
    assert registered(storage) == []
    acknowledge(storage, "billing", Stream.BATCHES, 9)
    assert needed_from(storage, Stream.BATCHES) == 9


def test_the_slowest_reader_of_each_log_counts() -> None:
    storage = SimulatedDisk().storage()
    for name, stream, needs in (
        ("a", Stream.INPUT, 4),
        ("b", Stream.INPUT, 2),
        ("c", Stream.OUTPUT, 1),
    ):
        register(storage, name, stream, needs)
    assert [each.name for each in registered(storage)] == ["a", "b", "c"]
    assert [needed_from(storage, each) for each in Stream] == [2, 1, None, None, None]


@pytest.mark.parametrize("name", ["a", "A9_", "billing-2.eu", "x.json", "0", "a" * 100])
def test_a_name_of_plain_letters_is_taken(name: str) -> None:
    storage = SimulatedDisk().storage()
    assert check_reader_name(name) == name
    register(storage, name, Stream.BATCHES, 1)
    assert [each.name for each in registered(storage)] == [name]
    assert forget(storage, name)


@pytest.mark.parametrize(
    "name", ["", ".", "..", ".a", "-a", "a/b", "a b", "ä", "a\n", "a\0", "a" * 101, "../meta"]
)
def test_a_name_that_is_no_file_name_is_refused(name: str) -> None:
    disk = SimulatedDisk()
    storage = disk.storage()
    with pytest.raises(SettingError, match="cannot be the name of a reader"):
        register(storage, name, Stream.BATCHES, 1)
    with pytest.raises(SettingError):
        acknowledge(storage, name, Stream.BATCHES, 1)
    with pytest.raises(SettingError):
        forget(storage, name)
    assert disk.files() == []


def test_other_files_beside_readers_are_passed_over() -> None:
    storage = SimulatedDisk().storage()
    register(storage, "billing", Stream.BATCHES, 1)
    storage.publish("readers/notes.txt", [b"x"])
    storage.publish("readers/a b.json", [b"x"])
    assert [each.name for each in registered(storage)] == ["billing"]


def test_harm_to_any_byte_of_a_reader_is_noticed_or_makes_no_difference() -> None:
    disk = SimulatedDisk()
    register(disk.storage(), "billing", Stream.BATCHES, 1234, _now)
    path = "readers/billing.json"
    whole = disk.content(path)
    refused = 0
    harmed = [whole[:size] for size in range(len(whole))]
    for offset in range(len(whole)):
        for bit in range(8):
            changed = bytearray(whole)
            changed[offset] ^= 1 << bit
            harmed.append(bytes(changed))
    for data in harmed:
        disk.overwrite(path, data)
        error = None
        try:
            assert registered(disk.storage()) == [Reader("billing", Stream.BATCHES, 1234, 5)]
        except DamagedSegment as refusal:
            error = refusal
        if error is not None:
            refused += 1
            assert error.where == path
            assert "--forget billing" in error.fix
    assert refused > 0.8 * len(harmed)
    acknowledge(disk.storage(), "billing", Stream.BATCHES, 2, _now)
    assert needed_from(disk.storage(), Stream.BATCHES) == 2, "it is written anew"


@pytest.mark.parametrize("power_fails", [False, True], ids=["kill", "power"])
def test_a_reader_stopped_at_any_operation_needs_what_it_said_or_what_it_was_saying(
    power_fails: bool,
) -> None:
    for stop in range(30):
        disk = SimulatedDisk()
        said = [None, 3]
        disk.stop_after(stop)
        is_stopped = False
        try:
            register(disk.storage(), "billing", Stream.BATCHES, 3)
            said = [3, 5]
            acknowledge(disk.storage(), "billing", Stream.BATCHES, 5)
            said = [3, 5]
        except Crashed:
            is_stopped = True
        if power_fails:
            disk.crash(random.Random(stop))
        else:
            disk.kill()
        assert needed_from(disk.storage(), Stream.BATCHES) in said
        if not is_stopped:
            break
    assert stop > 10


# Operators


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_logs(tmp_path_factory.mktemp("readers") / "logs", count_orders()).path


@pytest.mark.parametrize("stream", [Stream.INPUT, Stream.OUTPUT])
def test_trimming_an_operator_keeps_what_its_readers_need(
    logs: Path, tmp_path: Path, stream: Stream
) -> None:
    path = tmp_path / "copy"
    shutil.copytree(logs, path)
    storage = LocalStorage(path)
    register(storage, "billing", stream, 2)
    files = OperatorFiles(storage)
    planned = trim_operator(files, 100, dry_run=True)
    assert trim_operator(files, 100) == planned
    for log in files.logs():
        oldest = log.oldest()
        if log.identity.stream is stream:
            assert oldest == 2
        elif log.identity.stream in (Stream.INPUT, Stream.OUTPUT):
            assert oldest > 2
    forget(storage, "billing")
    trim_operator(files, 100)
    assert all(log.oldest() > 2 for log in files.logs() if log.identity.stream is stream)


@pytest.mark.parametrize("stream", [Stream.INPUT, Stream.OUTPUT])
def test_a_bucket_that_trims_itself_keeps_what_its_readers_need(
    tmp_path: Path, stream: Stream
) -> None:
    case = count_orders()
    storage = LocalStorage(tmp_path)
    register(storage, "billing", stream, 2)
    bucket = Place(tmp_path, case, Continuous(q=25, u=40)).bucket()
    for batch, rows in enumerate(case.batches):
        bucket.run(batch, rows)
    newest = len(case.batches) - 1
    bucket.trim(newest)
    files = OperatorFiles(storage)
    oldest = {each: files.log(each, 0).oldest() for each in OPERATOR_STREAMS}
    assert oldest[stream] == 2
    other = Stream.INPUT if stream is Stream.OUTPUT else Stream.OUTPUT
    assert oldest[other] > 2
    forget(storage, "billing")
    bucket.trim(newest)
    assert files.log(stream, 0).oldest() > 2
    bucket.close()


def test_a_reader_that_starts_again_writes_its_damaged_file_anew() -> None:
    disk = SimulatedDisk()
    storage = disk.storage()
    register(storage, "billing", Stream.BATCHES, 3)
    disk.flip("readers/billing.json", 5, 1)
    with pytest.raises(DamagedSegment, match="billing"):
        registered(storage)
    assert register(storage, "billing", Stream.BATCHES, 5)
    assert [reader.needs for reader in registered(storage)] == [5]
