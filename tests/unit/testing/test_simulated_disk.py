"""The simulated disk is what the crash tests stand on, so it is tested itself."""

from __future__ import annotations

import errno
import os
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from trailmark.log.storage.file_system import FileSystem, OperatingSystem
from trailmark.testing.disk import Crashed, SimulatedDisk


def written(disk: FileSystem, path: str, data: bytes, *, sync: bool = False) -> None:
    descriptor = disk.create(path)
    disk.write(descriptor, [data])
    if sync:
        disk.sync(descriptor)
    disk.close(descriptor)


@pytest.fixture
def disk() -> SimulatedDisk:
    disk = SimulatedDisk()
    disk.make_directory("/disk")
    disk.sync_directory("/")
    return disk


def outcomes(prepare: Callable[[SimulatedDisk], None], tries: int = 300) -> set[object]:
    """What is found under /disk/x after a power failure, over many random ones."""
    found: set[object] = set()
    for state in range(tries):
        disk = SimulatedDisk()
        disk.make_directory("/disk")
        disk.sync_directory("/")
        prepare(disk)
        disk.crash(random.Random(state))
        found.add(disk.content("x") if "x" in disk.files() else None)
    return found


def test_a_file_without_any_sync_may_be_absent_empty_torn_or_whole() -> None:
    found = outcomes(lambda disk: written(disk, "/disk/x", b"a" * 1000))
    assert None in found
    assert b"" in found
    assert b"a" * 1000 in found
    assert bytes(1000) in found
    assert b"a" * 512 + bytes(488) in found
    assert len(found) > 20


def test_synced_bytes_survive_but_not_without_the_name() -> None:
    found = outcomes(lambda disk: written(disk, "/disk/x", b"a" * 1000, sync=True))
    assert found == {None, b"a" * 1000}


def test_a_synced_name_does_not_save_unsynced_bytes() -> None:
    def prepare(disk: SimulatedDisk) -> None:
        written(disk, "/disk/x", b"a" * 1000)
        disk.sync_directory("/disk")

    found = outcomes(prepare)
    assert None not in found
    assert b"" in found
    assert b"a" * 1000 in found


def test_synced_bytes_under_a_synced_name_always_survive() -> None:
    def prepare(disk: SimulatedDisk) -> None:
        written(disk, "/disk/x", b"a" * 1000, sync=True)
        disk.sync_directory("/disk")

    assert outcomes(prepare) == {b"a" * 1000}


def test_an_unlinked_file_may_come_back_until_the_directory_is_synced() -> None:
    def prepare(disk: SimulatedDisk) -> None:
        written(disk, "/disk/x", b"a", sync=True)
        disk.sync_directory("/disk")
        disk.unlink("/disk/x")

    def prepare_and_sync(disk: SimulatedDisk) -> None:
        prepare(disk)
        disk.sync_directory("/disk")

    assert outcomes(prepare) == {None, b"a"}
    assert outcomes(prepare_and_sync) == {None}


def test_of_several_unlinked_files_any_may_come_back_whatever_the_order() -> None:
    found = set()
    for state in range(300):
        disk = SimulatedDisk()
        disk.make_directory("/disk")
        disk.sync_directory("/")
        for name in "abc":
            written(disk, f"/disk/{name}", b"x", sync=True)
        disk.sync_directory("/disk")
        for name in "abc":
            disk.unlink(f"/disk/{name}")
        disk.crash(random.Random(state))
        found.add("".join(disk.files()))
    assert found == {"", "a", "b", "c", "ab", "ac", "bc", "abc"}


def test_a_rename_happens_in_one_step() -> None:
    def prepare(disk: SimulatedDisk) -> None:
        written(disk, "/disk/x", b"old", sync=True)
        written(disk, "/disk/y", b"new", sync=True)
        disk.sync_directory("/disk")
        disk.rename("/disk/y", "/disk/x")

    assert outcomes(prepare) == {b"old", b"new"}


def test_a_rename_to_another_name_of_the_same_file_does_nothing(
    disk: SimulatedDisk, tmp_path: Path
) -> None:
    for files, where in ((disk, "/disk"), (OperatingSystem(), str(tmp_path))):
        written(files, f"{where}/x", b"a")
        files.link(f"{where}/x", f"{where}/y")
        files.rename(f"{where}/x", f"{where}/y")
        assert sorted(entry.name for entry in files.list_directory(where)) == ["x", "y"]


def test_a_file_in_a_directory_whose_name_is_not_synced_may_vanish() -> None:
    lost = 0
    for state in range(50):
        disk = SimulatedDisk()
        disk.make_directory("/disk")
        written(disk, "/disk/x", b"a", sync=True)
        disk.sync_directory("/disk")
        disk.crash(random.Random(state))
        lost += disk.files() == []
    assert 0 < lost < 50


def test_a_kill_keeps_everything_and_closes_files(disk: SimulatedDisk) -> None:
    descriptor = disk.create("/disk/x")
    disk.write(descriptor, [b"half"])
    disk.kill()
    assert disk.content("x") == b"half"
    with pytest.raises(KeyError):
        disk.sync(descriptor)


def test_it_stops_at_the_operation_it_is_told_and_stays_down(disk: SimulatedDisk) -> None:
    disk.stop_after(1)
    descriptor = disk.create("/disk/x")
    with pytest.raises(Crashed):
        disk.write(descriptor, [b"abcdef"])
    with pytest.raises(Crashed):
        disk.close(descriptor)
    with pytest.raises(Crashed):
        disk.size("/disk/x")
    disk.kill()
    assert disk.content("x") == b"abc", "a write stops half-way"
    assert disk.size("/disk/x") == 3


def test_looking_is_not_an_operation_but_it_is_a_call(disk: SimulatedDisk) -> None:
    written(disk, "/disk/x", b"a")
    operations, calls = disk.operations, disk.calls
    disk.size("/disk/x")
    disk.read("/disk/x", 0, None)
    disk.list_directory("/disk")
    assert (disk.operations, disk.calls) == (operations, calls + 3)


def test_a_planned_failure_happens_once(disk: SimulatedDisk) -> None:
    written(disk, "/disk/x", b"a")
    disk.fail_on(2, errno.EIO)
    disk.size("/disk/x")
    with pytest.raises(OSError, match="Input/output error"):
        disk.size("/disk/x")
    assert disk.size("/disk/x") == 1


def test_a_call_whose_answer_is_lost_is_carried_out(disk: SimulatedDisk) -> None:
    disk.lose_answer(1, errno.EIO)
    with pytest.raises(OSError, match="Input/output error"):
        disk.make_directory("/disk/d")
    disk.lose_answer(1)
    with pytest.raises(FileExistsError):
        disk.make_directory("/disk/e")
    written(disk, "/disk/x", b"a")
    disk.lose_answer(1)
    with pytest.raises(FileNotFoundError):
        disk.unlink("/disk/x")
    assert disk.failed == ("unlink", "/disk/x")
    assert sorted(each.name for each in disk.list_directory("/disk")) == ["d", "e"]


def test_bytes_whose_sync_failed_are_lost_though_the_next_sync_succeeds(
    disk: SimulatedDisk,
) -> None:
    written(disk, "/disk/x", b"a" * 2_000)
    disk.sync_directory("/disk")
    disk.fail_on(1, errno.EIO)
    with pytest.raises(OSError, match="Input/output error"):
        disk.sync_file("/disk/x")
    disk.sync_file("/disk/x")
    assert disk.content("x") == b"a" * 2_000
    lost = 0
    for state in range(20):
        after = disk.copy()
        after.crash(random.Random(state))
        lost += after.content("x") != b"a" * 2_000
    assert lost > 5


def test_a_full_disk_takes_what_fits_and_then_nothing(disk: SimulatedDisk) -> None:
    disk.capacity = 10
    descriptor = disk.create("/disk/x")
    assert disk.write(descriptor, [b"123456", b"789abc"]) == 10
    with pytest.raises(OSError, match="No space left") as caught:
        disk.write(descriptor, [b"d"])
    assert caught.value.errno == errno.ENOSPC
    disk.close(descriptor)
    disk.unlink("/disk/x")
    written(disk, "/disk/y", b"123")
    assert disk.content("y") == b"123"


def test_it_behaves_as_the_operating_system_does(disk: SimulatedDisk, tmp_path: Path) -> None:
    assert behaviour(disk, "/disk") == behaviour(OperatingSystem(), str(tmp_path))


def behaviour(files: FileSystem, root: str) -> list[object]:
    """A list of answers and errors that must not depend on which file system gives them."""
    answers: list[object] = []

    def ask(question: Callable[[], object]) -> None:
        try:
            answer = question()
            answers.append(bytes(answer[0]) if isinstance(answer, tuple) else answer)
        except OSError as error:
            answers.append(errno.errorcode[error.errno or 0])

    written(files, f"{root}/a", b"abcdef", sync=True)
    ask(lambda: files.create(f"{root}/a"))
    ask(lambda: files.create(f"{root}/no/such"))
    ask(lambda: files.make_directory(f"{root}/d"))
    ask(lambda: files.make_directory(f"{root}/d"))
    ask(lambda: files.make_directory(f"{root}/no/such"))
    ask(lambda: files.link(f"{root}/a", f"{root}/d/b"))
    ask(lambda: files.link(f"{root}/a", f"{root}/d/b"))
    ask(lambda: files.link(f"{root}/missing", f"{root}/d/c"))
    ask(lambda: files.is_same(f"{root}/a", f"{root}/d/b"))
    ask(lambda: files.is_same(f"{root}/a", f"{root}/d"))
    ask(lambda: files.is_same(f"{root}/a", f"{root}/missing"))
    ask(lambda: files.unlink(f"{root}/a"))
    ask(lambda: files.unlink(f"{root}/a"))
    for offset, length in ((0, None), (2, 3), (4, 99), (9, None), (-2, 2), (-99, 3)):
        ask(lambda o=offset, n=length: files.read(f"{root}/d/b", o, n))  # type: ignore[misc]
    ask(lambda: files.read(f"{root}/missing", 0, None))
    ask(lambda: files.size(f"{root}/d/b"))
    ask(lambda: files.size(f"{root}/d/b/c"))
    written(files, f"{root}/d/new", b"new")
    ask(lambda: files.rename(f"{root}/d/new", f"{root}/d/b"))
    ask(lambda: files.rename(f"{root}/d/new", f"{root}/d/b"))
    ask(lambda: files.read(f"{root}/d/b", 0, None))
    ask(lambda: files.sync_file(f"{root}/d/b"))
    ask(lambda: files.sync_file(f"{root}/missing"))
    ask(lambda: files.sync_directory(f"{root}/d"))
    ask(lambda: files.sync_directory(f"{root}/missing"))
    ask(lambda: sorted((e.name, e.is_file) for e in files.list_directory(root)))
    ask(lambda: [(e.name, e.size, e.is_file) for e in files.list_directory(f"{root}/d")])
    ask(lambda: files.list_directory(f"{root}/missing"))
    ask(lambda: files.open(f"{root}/missing"))
    descriptor = files.open(f"{root}/d/b")
    ask(lambda: files.links(descriptor))
    files.link(f"{root}/d/b", f"{root}/again")
    ask(lambda: files.links(descriptor))
    ask(lambda: files.write(descriptor, [b"N", b"E"]))
    ask(lambda: files.read(f"{root}/again", 0, None))
    files.cut(descriptor, 1)
    ask(lambda: files.read(f"{root}/again", 0, None))
    files.close(descriptor)
    assert os.path.isabs(root)
    return answers


def test_a_stop_before_a_file_leaves_everything_before_it() -> None:
    disk = SimulatedDisk()
    disk.stop_before_writing("log/b")
    storage = disk.storage()
    storage.publish("log/a", [b"first"])
    with pytest.raises(Crashed):
        storage.publish("log/b", [b"second"])
    assert disk.stopped is not None
    name, path = disk.stopped
    assert (name, path.startswith("/disk/log/.b.")) == ("create", True)
    disk.kill()
    assert disk.files() == ["log/a"]
    assert disk.storage().publish("log/b", [b"second"])


def test_the_disk_says_in_which_call_it_stopped() -> None:
    stopped = []
    for operations in range(4, 9):
        disk = SimulatedDisk()
        disk.stop_after(operations)
        with pytest.raises(Crashed):
            disk.storage().publish("log/a", [b"first"])
        assert disk.stopped is not None
        stopped.append(disk.stopped[0])
        assert "/log" in disk.stopped[1]
    assert stopped == ["create", "write", "sync", "link", "unlink"]
