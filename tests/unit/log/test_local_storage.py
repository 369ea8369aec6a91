"""What only real files, real processes and the order of system calls can show."""

from __future__ import annotations

import errno
import multiprocessing
import os
import random
import resource
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from tests.support.disk import may_go_untold
from tests.support.left_behind import dead_process, left_behind
from trailmark.errors import DiskFull, NoPermission, StorageError, Unreachable
from trailmark.log import LocalStorage
from trailmark.log.storage import temporaries
from trailmark.log.storage.temporaries import ABANDONED_AFTER_US, temporary_name
from trailmark.settings import Durability
from trailmark.testing.disk import SimulatedDisk

PATH = "in/00003/a.seg"


def race(root: str, writer: int, rounds: int, start: object, results: object) -> None:
    """Publish the same names as the other processes; tell which were created here."""
    storage = LocalStorage(root)
    start.wait()  # type: ignore[attr-defined]
    won = [n for n in range(rounds) if storage.publish(f"in/{n:05d}", [f"{writer}".encode() * 999])]
    results.put((writer, won))  # type: ignore[attr-defined]


def test_of_two_processes_exactly_one_creates_each_file(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    start, results, rounds = context.Barrier(2), context.Queue(), 200
    writers = [
        context.Process(target=race, args=(str(tmp_path), n, rounds, start, results))
        for n in (1, 2)
    ]
    for writer in writers:
        writer.start()
    won = dict(results.get(timeout=60) for _ in writers)
    for writer in writers:
        writer.join(timeout=60)
        assert writer.exitcode == 0
    assert sorted(won[1] + won[2]) == list(range(rounds))
    for number, names in won.items():
        for n in names:
            assert (tmp_path / f"in/{n:05d}").read_bytes() == f"{number}".encode() * 999
    assert len(os.listdir(tmp_path / "in")) == rounds


def test_many_threads_publish_into_a_new_directory(tmp_path: Path) -> None:
    storage = LocalStorage(tmp_path)
    created: list[bool] = []

    def publish(n: int) -> None:
        created.append(storage.publish(f"out/{n % 4:05d}/{n % 8}", [b"x" * n]))

    threads = [threading.Thread(target=publish, args=(n,)) for n in range(32)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert created.count(True) == 8
    assert not [path for path in tmp_path.rglob("*") if path.name.startswith(".")]


class Recorded(SimulatedDisk):
    """Remembers which file calls were made, in order."""

    def __init__(self) -> None:
        super().__init__()
        self.made: list[str] = []

    def write(self, *args: object) -> int:
        self.made.append("write")
        return super().write(*args)  # type: ignore[arg-type]

    def sync(self, *args: object) -> None:
        self.made.append("sync")
        super().sync(*args)  # type: ignore[arg-type]

    def sync_file(self, *args: object) -> None:
        self.made.append("sync_file")
        super().sync_file(*args)  # type: ignore[arg-type]

    def link(self, *args: object) -> None:
        self.made.append("link")
        super().link(*args)  # type: ignore[arg-type]

    def unlink(self, *args: object) -> None:
        self.made.append("unlink")
        super().unlink(*args)  # type: ignore[arg-type]

    def sync_directory(self, path: str) -> None:
        self.made.append(f"sync {path}")
        super().sync_directory(path)

    def list_directory(self, path: str) -> list[object]:  # type: ignore[override]
        self.made.append("list")
        return super().list_directory(path)  # type: ignore[return-value]


def test_publish_writes_syncs_links_and_syncs_the_directory_in_this_order() -> None:
    disk = Recorded()
    storage = disk.storage()
    storage.publish("in/00003/a.seg", [b"x"])
    disk.made.clear()
    storage.publish("in/00003/b.seg", [b"x"])
    assert disk.made == ["write", "sync", "link", "unlink", "sync /disk/in/00003"]


def test_the_way_down_to_a_new_directory_is_synced_before_the_first_file_is_published() -> None:
    disk = Recorded()
    disk.storage().publish("in/00003/a.seg", [b"x"])
    assert disk.made[:3] == ["sync /", "sync /disk", "sync /disk/in"]


def test_directories_that_somebody_else_made_are_synced_too() -> None:
    disk = Recorded()
    disk.storage(Durability.UNSYNCED).publish("in/00003/a.seg", [b"x"])
    disk.made.clear()
    disk.storage().publish("in/00003/b.seg", [b"x"])
    assert disk.made[:3] == ["sync /", "sync /disk", "sync /disk/in"]


def test_whoever_loses_the_race_syncs_what_the_winner_has_published() -> None:
    disk = Recorded()
    disk.storage(Durability.UNSYNCED).publish(PATH, [b"winner"])
    disk.made.clear()
    assert disk.storage().publish(PATH, [b"loser"]) is False
    assert disk.made[-2:] == ["sync_file", "sync /disk/in/00003"]


def test_unsynced_storage_syncs_nothing_unless_told_to() -> None:
    disk = Recorded()
    storage = disk.storage(Durability.UNSYNCED)
    storage.publish(PATH, [b"x"])
    assert disk.made == ["write", "link", "unlink"]
    disk.made.clear()
    storage.publish("in/00003/b.seg", [b"x"], force_sync=True)
    assert disk.made[-5:] == ["write", "sync", "link", "unlink", "sync /disk/in/00003"]


@pytest.mark.parametrize("durability", list(Durability))
def test_a_deletion_is_synced_unless_told_not_to(durability: Durability) -> None:
    disk = Recorded()
    storage = disk.storage(durability)
    storage.publish(PATH, [b"x"])
    storage.publish("in/00003/b.seg", [b"x"])
    disk.made.clear()
    storage.delete("in/00003/b.seg", synced=False)
    assert disk.made == ["unlink"]
    storage.delete(PATH)
    assert disk.made == ["unlink", "unlink", "sync /disk/in/00003"]


def test_whoever_finds_a_file_deleted_syncs_that_as_well() -> None:
    """Otherwise it could count on the deletion, and a power failure undo it."""
    for state in range(20):
        disk = SimulatedDisk()
        disk.storage().publish(PATH, [b"x"])
        disk.storage().delete(PATH, synced=False)
        disk.storage().delete(PATH)
        disk.crash(random.Random(state))
        assert not disk.storage().exists(PATH)


@pytest.mark.parametrize("largest", [1, 2, 3, 5, 1000])
def test_what_one_write_does_not_take_is_written_by_the_next(largest: int) -> None:
    disk = SimulatedDisk(largest_write=largest)
    disk.storage().publish(PATH, [b"abcd", b"e", b"", b"fghij", b"klm"])
    assert disk.content(PATH) == b"abcdefghijklm"


def test_a_directory_that_was_removed_is_made_again(tmp_path: Path) -> None:
    storage = LocalStorage(tmp_path / "root")
    storage.publish(PATH, [b"x"])
    storage.delete(PATH)
    (tmp_path / "root/in/00003").rmdir()
    assert storage.publish(PATH, [b"y"]) is True


@contextmanager
def largest_file(size: int) -> Iterator[None]:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_real_write_that_does_not_fit_is_disk_full_and_leaves_nothing(tmp_path: Path) -> None:
    storage = LocalStorage(tmp_path)
    storage.publish("in/a", [b"whole"])
    with largest_file(10_000), pytest.raises(DiskFull, match="Could not publish") as caught:
        storage.publish("in/b", [b"x" * 8_000, b"y" * 8_000])
    assert caught.value.where == str(tmp_path / "in/b")
    assert "room" in caught.value.fix
    assert os.listdir(tmp_path / "in") == ["a"]
    assert storage.publish("in/b", [b"x" * 8_000, b"y" * 8_000]) is True


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        (errno.ENOSPC, DiskFull),
        (errno.EDQUOT, DiskFull),
        (errno.EACCES, NoPermission),
        (errno.EPERM, NoPermission),
        (errno.EROFS, NoPermission),
        (errno.EIO, Unreachable),
        (errno.ETIMEDOUT, Unreachable),
        (errno.ENXIO, StorageError),
    ],
)
def test_every_failing_call_of_publish_is_told_and_leaves_no_temporary(
    code: int, expected: type[StorageError]
) -> None:
    counting = SimulatedDisk()
    counting.storage().publish(PATH, [b"x"])
    for call in range(1, counting.calls + 1):
        disk = SimulatedDisk()
        storage = disk.storage()
        disk.fail_on(call, code)
        error = failure_of_publish(storage)
        if error is None:
            assert may_go_untold(disk)
            assert disk.content(PATH) == b"x"
        else:
            assert type(error) is expected
            assert error.where == f"/disk/{PATH}"
            assert error.fix
        # Only when unlinking the temporary is what fails, it stays; `clean` takes it later.
        assert len([path for path in disk.files() if path != PATH]) <= 1
        storage.clean("in/00003")
        assert [path for path in disk.files() if path != PATH] == []
        storage.publish(PATH, [b"x"])
        assert disk.content(PATH) == b"x"


def test_a_temporary_that_vanishes_before_it_is_linked_is_a_fault_not_a_missing_file() -> None:
    disk = SimulatedDisk()
    storage = disk.storage()
    storage.publish("in/00003/first.seg", [b"x"])
    disk.fail_on(5, errno.ENOENT)  # create, write, sync, close, link
    with pytest.raises(StorageError, match="Could not publish"):
        storage.publish(PATH, [b"x"])
    assert not storage.exists(PATH)


@pytest.mark.parametrize("code", [None, errno.EIO, errno.ETIMEDOUT])
def test_a_link_whose_answer_is_lost_is_found_and_put_on_disk(code: int | None) -> None:
    disk = SimulatedDisk()
    storage = disk.storage()
    storage.publish("in/00003/first.seg", [b"x"])
    disk.lose_answer(5, code)  # create, write, sync, close, link
    assert storage.publish(PATH, [b"ours"]) is True
    assert disk.failed == ("link", f"/disk/{PATH}")
    disk.crash(random.Random(1))
    assert disk.content(PATH) == b"ours"


@pytest.mark.parametrize("code", [errno.EEXIST, errno.EIO])
def test_a_link_that_fails_beside_another_file_leaves_the_place_to_that(code: int) -> None:
    disk = SimulatedDisk()
    storage = disk.storage()
    storage.publish(PATH, [b"same"])
    disk.fail_on(5, code)
    assert storage.publish(PATH, [b"same"]) is False


def test_who_cannot_look_whose_file_is_there_says_so() -> None:
    disk = SimulatedDisk()
    storage = disk.storage()
    storage.publish(PATH, [b"theirs"])
    disk.fail_on(6, errno.EIO)  # create, write, sync, close, link, is_same
    with pytest.raises(StorageError, match="Could not publish"):
        storage.publish(PATH, [b"ours"])


@pytest.mark.parametrize("code", [None, errno.EIO])
def test_every_answer_may_be_lost_while_files_are_replaced_deleted_and_set_aside(
    code: int | None,
) -> None:
    call, lost = 0, True
    while lost:
        call += 1
        disk = SimulatedDisk()
        disk.lose_answer(call, code)
        _rearrange(disk.storage())
        lost = disk.failed is not None
        disk.relax()
        assert disk.content("aside/in/17.seg") == b"z"
        disk.storage().clean("in")
        assert disk.files() == ["aside/in/17.seg"]
    assert call > 40


def _rearrange(storage: LocalStorage) -> None:
    for act in (
        lambda: storage.replace("in/x", [b"one"]),
        lambda: storage.replace("in/x", [b"two"]),
        lambda: storage.settle("in/x"),
        lambda: storage.publish("in/1.seg", [b"y"]),
        lambda: storage.recycle("in/1.seg"),
        lambda: storage.publish("in/17.seg", [b"z"]),
        lambda: storage.delete("in/x"),
        lambda: storage.set_aside("in/17.seg"),
    ):
        _repeated(act)


def _repeated(act: Callable[[], object]) -> None:
    """A failure is told, and the next attempt finds everything in order."""
    try:
        act()
    except StorageError:
        with suppress(FileNotFoundError):  # it has been set aside
            act()


@pytest.mark.parametrize("code", [errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK])
def test_a_file_system_without_hard_links_is_named(code: int) -> None:
    disk = SimulatedDisk()
    storage = disk.storage()
    storage.publish("in/00003/first.seg", [b"x"])
    disk.fail_on(5, code)
    with pytest.raises(StorageError, match="hard links") as caught:
        storage.publish(PATH, [b"x"])
    assert "s3://" in caught.value.fix
    assert caught.value.where == f"/disk/{PATH}"
    assert disk.files() == ["in/00003/first.seg"]


@pytest.mark.parametrize("below", ["", "logs", "some/logs"])
def test_a_root_that_cannot_be_made_is_named_in_full(tmp_path: Path, below: str) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    root = tmp_path / "link" / below
    with pytest.raises(StorageError, match="cannot be made") as caught:
        LocalStorage(root).publish(PATH, [b"x"])
    assert caught.value.where == str(root)
    assert str(tmp_path / "link") in caught.value.fix
    with pytest.raises(StorageError, match="/proc/logs cannot be made"):
        LocalStorage("/proc/logs").publish(PATH, [b"x"])


# A sync that fails


def test_bytes_whose_sync_failed_are_written_anew() -> None:
    """The next sync would say that they are on disk, and a power failure take them."""
    disk = SimulatedDisk()
    storage = disk.storage(Durability.UNSYNCED)
    storage.publish(PATH, [b"x" * 1000])
    storage.publish("in/00003/b.seg", [b"y"], force_sync=True)
    disk.fail_on(1, errno.EIO)
    storage.settle(PATH)
    assert disk.failed == ("sync_file", f"/disk/{PATH}")
    for state in range(20):
        after = disk.copy()
        after.crash(random.Random(state))
        assert after.content(PATH) == b"x" * 1000
        assert after.files() == ["in/00003/a.seg", "in/00003/b.seg"]


def test_bytes_whose_sync_failed_never_count_as_synced_before_they_are_written_anew() -> None:
    disk = SimulatedDisk()
    storage = disk.storage(Durability.UNSYNCED)
    storage.publish(PATH, [b"x" * 1000])
    storage.publish("in/00003/b.seg", [b"y"], force_sync=True)
    disk.fail_on(1, errno.EIO)
    disk.capacity = 1500
    for _ in range(3):
        with pytest.raises(StorageError, match="Could not sync"):
            storage.settle(PATH)
    disk.capacity = None
    storage.settle(PATH)
    disk.crash(random.Random(1))
    assert disk.content(PATH) == b"x" * 1000


def failure_of_publish(storage: LocalStorage) -> StorageError | None:
    try:
        storage.publish(PATH, [b"x"])
    except StorageError as error:
        return error
    return None


def test_permissions_of_the_directory_above_the_root_do_not_matter() -> None:
    disk = SimulatedDisk()
    disk.storage().publish(PATH, [b"x"])
    storage = disk.storage()
    disk.fail_on(2, errno.EACCES)  # the sync of "/", after the attempt to make the root
    assert storage.publish("in/00003/b.seg", [b"y"]) is True


def test_clean_removes_what_a_dead_process_left_and_nothing_else(tmp_path: Path) -> None:
    directory = tmp_path / "in/00003"
    storage = LocalStorage(tmp_path)
    storage.publish(PATH, [b"x"])
    dead = left_behind(directory, dead_process())
    alive = left_behind(directory, os.getppid())
    (directory / ".unrelated").write_bytes(b"")
    assert storage.clean("in/00003") == [dead]
    assert sorted(os.listdir(directory)) == sorted([alive, ".unrelated", "a.seg"])


def test_clean_keeps_what_this_process_is_writing(tmp_path: Path) -> None:
    storage = LocalStorage(tmp_path)
    storage.publish(PATH, [b"x"])
    with temporary_name("b.seg") as name:
        (tmp_path / "in/00003" / name).write_bytes(b"half")
        assert storage.clean("in/00003") == []
    # Same process number, but nobody here writes it: a process that had the number before us.
    assert storage.clean("in/00003") == [name]


def test_clean_gives_writers_on_other_hosts_time(tmp_path: Path) -> None:
    name = left_behind(tmp_path / "in", 1, host="0badcafe")
    modified_us = (tmp_path / "in" / name).stat().st_mtime_ns // 1_000
    young = LocalStorage(tmp_path, clock=lambda: modified_us + ABANDONED_AFTER_US)
    old = LocalStorage(tmp_path, clock=lambda: modified_us + ABANDONED_AFTER_US + 1)
    later = tmp_path / "in/later"
    later.touch()
    os.utime(later, ns=((modified_us + ABANDONED_AFTER_US + 1) * 1_000,) * 2)
    assert young.clean("in") == []
    assert old.clean("in") == [name]


def test_a_clock_that_is_ahead_makes_no_writer_on_another_host_old(tmp_path: Path) -> None:
    name = left_behind(tmp_path / "in", 1, host="0badcafe")
    modified_us = (tmp_path / "in" / name).stat().st_mtime_ns // 1_000
    ahead = LocalStorage(tmp_path, clock=lambda: modified_us + 24 * ABANDONED_AFTER_US)
    ahead.publish("in/a.seg", [b"x"])
    assert ahead.clean("in") == []
    assert (tmp_path / "in" / name).exists()


def test_processes_of_another_boot_or_container_are_never_looked_up_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Hosts of one name, and containers of one number in different kernels, share a directory."""
    here = temporaries._host()
    for what, elsewhere in (
        ("_boot_id", lambda: "another boot"),
        ("_namespace", lambda kind: f"{kind}:[4026531836]"),
    ):
        with monkeypatch.context() as other:
            other.setattr(temporaries, what, elsewhere)
            there = temporaries._host()
        assert there != here
        name = left_behind(tmp_path / "in", dead_process(), host=there)
        assert LocalStorage(tmp_path).clean("in") == [], f"{name} may be being written elsewhere"
    assert temporaries._boot_id() == temporaries._boot_id() != ""


def test_temporaries_are_not_listed(tmp_path: Path) -> None:
    left_behind(tmp_path / "in", os.getpid())
    assert LocalStorage(tmp_path).list("in") == []
