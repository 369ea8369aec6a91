"""Files below a directory of a POSIX file system.

A file is published in five steps, of which the third makes it visible and the fifth makes it
last::

    1 write aside   a temporary in the same directory; over a spare, if there is one
    2 sync          its bytes
    3 link          to the final name; an existing one wins
    4 unlink        the temporary
    5 sync          the directory
"""

from __future__ import annotations

import builtins
import errno
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress

from trailmark.log.clock import Clock, wall_clock_us
from trailmark.log.storage.faults import translated
from trailmark.log.storage.file_system import FileSystem, OperatingSystem
from trailmark.log.storage.paths import ancestors, aside_path, check_path, split_path
from trailmark.log.storage.protocol import Entry, Part
from trailmark.log.storage.spares import spare_name
from trailmark.log.storage.temporaries import is_left_over, temporary_name
from trailmark.settings import Durability


class LocalStorage:
    """Implements `Storage` below the directory ``root``, which is made when first needed.

    The instance remembers which directories it has put on disk, so it must not outlive the
    machine: after a crash (of a simulated disk, say) make a new one.
    """

    def __init__(
        self,
        root: str | os.PathLike[str],
        durability: Durability = Durability.SYNCED,
        *,
        file_system: FileSystem | None = None,
        clock: Clock = wall_clock_us,
    ) -> None:
        self._root = os.path.abspath(root)
        self._synced = durability is Durability.SYNCED
        self._files: FileSystem = OperatingSystem() if file_system is None else file_system
        self._clock = clock
        self._made: set[str] = set()
        self._settled: set[str] = set()

    def publish(self, path: str, parts: Sequence[Part], *, force_sync: bool = False) -> bool:
        final = self._at(path)
        sync = force_sync or self._synced
        with translated("publish the file", final, missing_is_fault=True):
            with self._written_aside(path, parts, sync) as temporary:
                created = self._link(temporary, final)
            if sync and created:
                self._files.sync_directory(os.path.dirname(final))
            elif sync:
                self._settle_winner(path)
        return created

    def replace(self, path: str, parts: Sequence[Part]) -> None:
        final = self._at(path)
        with (
            translated("replace the file", final, missing_is_fault=True),
            self._written_aside(path, parts, self._synced) as temporary,
        ):
            # The directory is not synced: either version will do, and both are whole.
            self._files.rename(temporary, final)

    def settle(self, path: str) -> None:
        with translated("sync the file", self._at(path)):
            self._settle(path)

    def read(self, path: str, offset: int = 0, length: int | None = None) -> memoryview:
        assert offset >= 0
        with translated("read the file", self._at(path)):
            return self._files.read(self._at(path), offset, length)[0]

    def read_tail(self, path: str, length: int) -> tuple[memoryview, int]:
        assert length > 0
        with translated("read the file", self._at(path)):
            return self._files.read(self._at(path), -length, length)

    def size(self, path: str) -> int:
        with translated("look at the file", self._at(path)):
            return self._files.size(self._at(path))

    def exists(self, path: str) -> bool:
        try:
            self.size(path)
        except FileNotFoundError:
            return False
        return True

    def list(self, directory: str) -> builtins.list[Entry]:
        try:
            with translated("list the directory", self._at(directory)):
                found = self._files.list_directory(self._at(directory))
        except FileNotFoundError:
            return []
        return sorted(
            (Entry(e.name, e.size) for e in found if e.is_file and not e.name.startswith(".")),
            key=lambda entry: entry.name,
        )

    def directories(self, directory: str) -> builtins.list[str]:
        with translated("list the directory", self._at(directory)):
            found = self._files.list_directory(self._at(directory))
        return sorted(e.name for e in found if not e.is_file and not e.name.startswith("."))

    def delete(self, path: str, *, synced: bool = True) -> None:
        final = self._at(path)
        with translated("delete the file", final):
            with suppress(FileNotFoundError):
                self._files.unlink(final)
            if not synced:
                return
            # Under either durability: files that came back out of order would look like a gap. And
            # though it was gone already: whoever took it away may not have synced that yet.
            with suppress(FileNotFoundError):
                self._files.sync_directory(os.path.dirname(final))

    def recycle(self, path: str) -> None:
        directory, name = split_path(path)
        spare = spare_name(name)
        if spare is None or not self._synced:
            # Names that are not synced may come back after a power failure, next to the file that
            # was written over theirs. Spares of a time when they were synced only take room.
            for gone in (path, f"{directory}/{spare}") if spare is not None else (path,):
                self.delete(gone, synced=False)
            return
        with translated("recycle the file", self._at(path)), suppress(FileNotFoundError):
            self._files.rename(self._at(path), f"{self._at(directory)}/{spare}")

    def set_aside(self, path: str) -> str:
        source = self._at(path)
        with translated("set the file aside", source):
            target = self._link_aside(path)
            self._settle(target)
            self._files.unlink(source)
            self._files.sync_directory(os.path.dirname(source))
        return target

    def clean(self, directory: str) -> builtins.list[str]:
        now_us = self._clock()
        removed = []
        where = self._at(directory)
        try:
            with translated("remove left-over temporaries", where):
                for entry in self._files.list_directory(where):
                    if is_left_over(entry.name, entry.changed_us, now_us):
                        self._remove_temporary(f"{where}/{entry.name}")
                        removed.append(entry.name)
        except FileNotFoundError:
            return []
        return sorted(removed)

    def _at(self, path: str) -> str:
        return os.path.join(self._root, check_path(path)) if path else self._root

    @contextmanager
    def _written_aside(self, path: str, parts: Sequence[Part], sync: bool) -> Iterator[str]:
        """A whole temporary beside the final place; it is gone after the block."""
        directory, name = split_path(path)
        with temporary_name(name) as temporary_file:
            temporary = f"{self._at(directory)}/{temporary_file}"
            try:
                self._write_aside(temporary, path, parts, sync)
                yield temporary
            finally:
                self._remove_temporary(temporary)

    def _write_aside(self, temporary: str, path: str, parts: Sequence[Part], sync: bool) -> None:
        directory, name = split_path(path)
        self._prepare(directory, sync)
        spare = self._open_spare(temporary, spare_name(name)) if self._synced else None
        descriptor = self._create(temporary, directory, sync) if spare is None else spare
        try:
            self._write_all(descriptor, parts)
            if spare is not None:
                self._files.cut(descriptor, sum(memoryview(part).nbytes for part in parts))
            if sync:
                self._files.sync(descriptor)
        finally:
            self._files.close(descriptor)

    def _open_spare(self, temporary: str, spare: str | None) -> int | None:
        """Takes a spare as the temporary; None if there is none that may be written over."""
        if spare is None:
            return None
        try:
            # Whoever renames it has it for itself.
            self._files.rename(f"{os.path.dirname(temporary)}/{spare}", temporary)
        except FileNotFoundError:
            return None
        except PermissionError as error:
            if error.errno != errno.EPERM:
                raise
            return None  # another user's, in a directory where only they may rename it
        try:
            descriptor = self._files.open(temporary)
        except OSError:
            pass  # another user's, or no plain file
        else:
            if self._files.links(descriptor) == 1:
                return descriptor
            # Somebody has a name of their own for it, a backup of hard links for instance.
            self._files.close(descriptor)
        self._remove_temporary(temporary)
        return None

    def _create(self, temporary: str, directory: str, sync: bool) -> int:
        try:
            return self._files.create(temporary)
        except FileNotFoundError:
            # Somebody removed the directory since this instance made it.
            self._made.discard(directory)
            self._settled.discard(directory)
            self._prepare(directory, sync)
            return self._files.create(temporary)

    def _write_all(self, descriptor: int, parts: Sequence[Part]) -> None:
        pending = [memoryview(part) for part in parts if len(part)]
        done = 0
        while done < len(pending):
            written = self._files.write(descriptor, pending[done:])
            assert written > 0, "a write of something wrote nothing and did not fail"
            while done < len(pending) and written >= len(pending[done]):
                written -= len(pending[done])
                done += 1
            if written:
                pending[done] = pending[done][written:]

    def _link(self, temporary: str, final: str) -> bool:
        try:
            self._files.link(temporary, final)
        except FileExistsError:
            return False
        return True

    def _link_aside(self, path: str) -> str:
        earlier = 0
        while True:
            target = aside_path(path, earlier)
            self._prepare(split_path(target)[0], sync=True)
            if self._link(self._at(path), self._at(target)):
                return target
            earlier += 1

    def _settle(self, path: str) -> None:
        self._prepare(split_path(path)[0], sync=True)
        self._files.sync_file(self._at(path))
        self._files.sync_directory(os.path.dirname(self._at(path)))

    def _settle_winner(self, path: str) -> None:
        # The winner may not have come as far as the last sync, or may not sync at all. Without
        # this the caller could act on a file that a power failure then takes away.
        try:
            self._settle(path)
        except FileNotFoundError:
            return  # merged or trimmed since: it was there, and has served

    def _remove_temporary(self, temporary: str) -> None:
        try:
            self._files.unlink(temporary)
        except FileNotFoundError:
            return  # renamed into place, or somebody else cleaned up

    def _prepare(self, directory: str, sync: bool) -> None:
        """Make the directory; with ``sync``, make sure that its way down from the root lasts.

        That is done even for directories found there: whoever made them may not have synced them
        yet.
        """
        ready = self._settled if sync else self._made
        if directory in ready:
            return
        self._make_directory(self._root, sync)
        for step in ancestors(directory):
            self._make_directory(self._at(step), sync)
        ready.add(directory)

    def _make_directory(self, path: str, sync: bool) -> None:
        above = os.path.dirname(path)
        try:
            self._files.make_directory(path)
        except FileExistsError:
            pass
        except FileNotFoundError:
            self._make_directory(above, sync)
            self._make_directory(path, sync)
            return
        if sync and above != path:
            self._sync_names(above, is_ours=path != self._root)

    def _sync_names(self, directory: str, is_ours: bool) -> None:
        try:
            self._files.sync_directory(directory)
        except PermissionError:
            # What lies above the root may not be ours to open, and then the root was made by
            # somebody who could.
            if is_ours:
                raise
