"""What every storage promises: real files, the simulated disk, an object store in memory."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import obstore.store
import pytest

from trailmark.errors import SettingError
from trailmark.log import Entry, LocalStorage, Storage, open_storage
from trailmark.log.storage.object_store import ObjectStorage
from trailmark.settings import Durability
from trailmark.testing.disk import SimulatedDisk

PATH = "in/00003/a.seg"


@pytest.fixture(params=["local", "local unsynced", "simulated", "object store", "azure"])
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> Storage:
    if request.param == "simulated":
        return SimulatedDisk().storage()
    if request.param == "object store":
        return ObjectStorage(obstore.store.MemoryStore())
    if request.param == "azure":
        return open_storage(request.getfixturevalue("azure_url"))
    durability = Durability.UNSYNCED if "unsynced" in request.param else Durability.SYNCED
    return LocalStorage(tmp_path / "not" / "there" / "yet", durability)


def test_the_first_to_publish_a_name_wins(storage: Storage) -> None:
    assert storage.publish(PATH, [b"first"]) is True
    assert storage.publish(PATH, [b"second"]) is False
    assert bytes(storage.read(PATH)) == b"first"
    assert storage.list("in/00003") == [Entry("a.seg", 5)]


def test_a_file_may_be_empty(storage: Storage) -> None:
    assert storage.publish(PATH, [], force_sync=True) is True
    assert storage.publish(PATH, [b"x"], force_sync=True) is False
    assert storage.list("in/00003") == [Entry("a.seg", 0)]


@pytest.mark.parametrize("other", [[b"ab", b"cd"], [b"abcd", b"e"], [b"abc"], [], [b"abcf"]])
def test_whose_file_is_there_is_told_by_what_is_in_it_or_by_who_made_it(
    storage: Storage, other: list[bytes]
) -> None:
    """Files can be told apart by more than their bytes, objects cannot."""
    storage.publish(PATH, [b"a", memoryview(b"bcd")])
    is_object = isinstance(storage, ObjectStorage)
    assert storage.publish(PATH, other) is (is_object and other == [b"ab", b"cd"])
    assert bytes(storage.read(PATH)) == b"abcd"


def test_parts_are_joined_in_order_whatever_their_kind(storage: Storage) -> None:
    storage.publish(PATH, [b"ab", b"", memoryview(b"cd"), memoryview(b"xefx")[1:3]])
    assert bytes(storage.read(PATH)) == b"abcdef"


def test_more_parts_than_one_system_call_takes_are_written(storage: Storage) -> None:
    parts = [bytes([n % 256]) for n in range(3000)]
    storage.publish(PATH, parts)
    assert bytes(storage.read(PATH)) == b"".join(parts)


@pytest.mark.parametrize(
    ("offset", "length", "expected"),
    [
        (0, None, b"abcdef"),
        (2, None, b"cdef"),
        (2, 3, b"cde"),
        (4, 100, b"ef"),
        (6, None, b""),
        (100, 5, b""),
        (0, 0, b""),
    ],
)
def test_a_range_is_read_as_far_as_the_file_goes(
    storage: Storage, offset: int, length: int | None, expected: bytes
) -> None:
    storage.publish(PATH, [b"abcdef"])
    assert bytes(storage.read(PATH, offset, length)) == expected


@pytest.mark.parametrize(("length", "expected"), [(2, b"ef"), (6, b"abcdef"), (4096, b"abcdef")])
def test_a_tail_comes_with_the_size_of_the_file(
    storage: Storage, length: int, expected: bytes
) -> None:
    storage.publish(PATH, [b"abcdef"])
    tail, size = storage.read_tail(PATH, length)
    assert (bytes(tail), size) == (expected, 6)


def test_what_was_read_cannot_be_written_to(storage: Storage) -> None:
    storage.publish(PATH, [b"abcdef"])
    assert storage.read(PATH).readonly


def test_replace_creates_and_overwrites(storage: Storage) -> None:
    storage.replace(PATH, [b"one"])
    storage.replace(PATH, [b"tw", b"o!"])
    assert bytes(storage.read(PATH)) == b"two!"
    assert storage.list("in/00003") == [Entry("a.seg", 4)]


def test_a_list_is_sorted_and_holds_only_the_files_of_the_directory(storage: Storage) -> None:
    for path in ("in/b", "in/a", "in/00003/x", "out/c"):
        storage.publish(path, [b"1234"])
    assert storage.list("in") == [Entry("a", 4), Entry("b", 4)]
    assert storage.list("elsewhere") == []


def test_directories_are_sorted_and_hold_neither_files_nor_what_is_below(storage: Storage) -> None:
    for path in ("in/b", "in/00002/x/y", "in/00001/z", "a"):
        storage.publish(path, [b"1234"])
    assert storage.directories("") == ["in"]
    assert storage.directories("in") == ["00001", "00002"]
    assert storage.directories("in/00001") == []


@pytest.mark.parametrize(
    "look",
    [
        lambda storage: storage.read(PATH),
        lambda storage: storage.read(PATH, 3, 4),
        lambda storage: storage.read_tail(PATH, 10),
        lambda storage: storage.size(PATH),
        lambda storage: storage.settle(PATH),
        lambda storage: storage.set_aside(PATH),
    ],
)
def test_a_missing_file_is_the_built_in_error(
    storage: Storage, look: Callable[[Storage], object]
) -> None:
    storage.publish("in/00003/other", [b"x"])
    with pytest.raises(FileNotFoundError):
        look(storage)
    assert storage.exists(PATH) is False


@pytest.mark.parametrize("synced", [True, False])
def test_delete_can_be_repeated(storage: Storage, synced: bool) -> None:
    storage.publish(PATH, [b"x"])
    storage.delete(PATH, synced=synced)
    storage.delete(PATH, synced=synced)
    storage.delete("no/such/directory", synced=synced)
    assert not storage.exists(PATH)
    assert storage.publish(PATH, [b"again"]) is True


def test_set_aside_never_overwrites_what_was_set_aside_before(storage: Storage) -> None:
    moved = []
    for content in (b"first", b"second", b"third"):
        storage.publish(PATH, [content])
        moved.append(storage.set_aside(PATH))
    assert not storage.exists(PATH)
    assert moved[0] == "aside/in/00003/a.seg"
    assert [bytes(storage.read(path)) for path in moved] == [b"first", b"second", b"third"]


def test_what_was_set_aside_but_not_taken_away_is_set_aside_once(storage: Storage) -> None:
    storage.publish(PATH, [b"first"])
    moved = storage.set_aside(PATH)
    if isinstance(storage, LocalStorage):
        where = storage._at(PATH)
        storage._files.link(storage._at(moved), where)  # as if nobody had come as far as that
    else:
        storage.publish(PATH, [b"first"])
    assert storage.set_aside(PATH) == moved
    assert storage.list("aside/in/00003") == [Entry("a.seg", 5)]
    assert not storage.exists(PATH)


def test_settle_and_clean_leave_whole_files_alone(storage: Storage) -> None:
    storage.publish(PATH, [b"x"])
    storage.settle(PATH)
    assert storage.clean("in/00003") == []
    assert storage.clean("elsewhere") == []
    assert storage.clean("") == []
    assert bytes(storage.read(PATH)) == b"x"


@pytest.mark.parametrize(
    "path",
    ["../x", "in/../../x", "/etc/passwd", "in//x", "in/./x", "in/x\0y", "in/", "in/.hidden", ".."],
)
def test_a_path_that_leads_out_of_the_storage_is_refused(storage: Storage, path: str) -> None:
    for use in (
        lambda: storage.publish(path, [b"x"]),
        lambda: storage.replace(path, [b"x"]),
        lambda: storage.read(path),
        lambda: storage.read_tail(path, 1),
        lambda: storage.size(path),
        lambda: storage.delete(path),
        lambda: storage.set_aside(path),
        lambda: storage.settle(path),
        lambda: storage.list(path),
        lambda: storage.clean(path),
    ):
        with pytest.raises(SettingError, match="not a path inside the storage"):
            use()
