"""Writing a file aside, whole and synced, before it gets its name."""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import TypeVar

from trailmark.log.storage.directories import Directories
from trailmark.log.storage.faults import NO_ROOM
from trailmark.log.storage.file_system import DirectoryEntry, FileSystem
from trailmark.log.storage.paths import split_path
from trailmark.log.storage.protocol import Part
from trailmark.log.storage.spares import is_spare, spare_name
from trailmark.log.storage.temporaries import temporary_name

_T = TypeVar("_T")


class Writing:
    """Writes temporaries, over spares if that is allowed."""

    def __init__(self, files: FileSystem, directories: Directories, *, over_spares: bool) -> None:
        self._files = files
        self._directories = directories
        self._over_spares = over_spares

    @contextmanager
    def written_aside(self, path: str, parts: Sequence[Part], sync: bool) -> Iterator[str]:
        """A whole temporary beside the final place; it is gone after the block."""
        directory, name = split_path(path)
        with temporary_name(name) as temporary_file:
            temporary = f"{self._directories.at(directory)}/{temporary_file}"
            try:
                self.with_room(lambda: self._write(temporary, path, parts, sync))
                yield temporary
            finally:
                # Whatever became of the file is decided: a temporary that stays is for `clean`.
                with suppress(OSError):
                    self._files.unlink(temporary)

    def with_room(self, write: Callable[[], _T]) -> _T:
        """Writes; where there is no room, once more without spares."""
        try:
            return write()
        except OSError as error:
            if error.errno not in NO_ROOM or not self._drop_spares():
                raise
        return write()

    def _drop_spares(self) -> bool:
        """Removes the spares of all logs; whether there were any."""
        streams = self._in(self._directories.at(""), lambda entry: not entry.is_file)
        logs = [log for each in streams for log in self._in(each, lambda entry: not entry.is_file)]
        spares = [spare for log in logs for spare in self._in(log, lambda e: is_spare(e.name))]
        for spare in spares:
            with suppress(OSError):  # somebody else has taken it, or it is not ours
                self._files.unlink(spare)
        return bool(spares)

    def _in(self, directory: str, wanted: Callable[[DirectoryEntry], bool]) -> list[str]:
        try:
            entries = self._files.list_directory(directory)
        except OSError:
            return []
        return [f"{directory}/{entry.name}" for entry in entries if wanted(entry)]

    def _write(self, temporary: str, path: str, parts: Sequence[Part], sync: bool) -> None:
        directory, name = split_path(path)
        self._directories.prepare(directory, sync)
        spare = self._open_spare(f"{self._directories.at(directory)}/", name, temporary)
        descriptor = self._create(temporary, directory, sync) if spare is None else spare
        try:
            self._write_all(descriptor, parts)
            if spare is not None:
                self._files.cut(descriptor, sum(memoryview(part).nbytes for part in parts))
            if sync:
                self._files.sync(descriptor)
        finally:
            self._files.close(descriptor)

    def _open_spare(self, beside: str, name: str, temporary: str) -> int | None:
        """Takes a spare as the temporary; None if there is none that may be written over."""
        spare = spare_name(name)
        if spare is None or not self._over_spares:
            return None
        try:
            # Whoever renames it has it for itself.
            self._files.rename(beside + spare, temporary)
        except FileNotFoundError:
            return None
        except PermissionError as error:
            if error.errno != errno.EPERM:
                raise
            return None  # another user's, in a directory where only they may rename it
        try:
            descriptor = self._files.open(temporary)
        except OSError:
            return None  # another user's, or no plain file
        is_free = False
        try:
            # Somebody may have a name of their own for it, a backup of hard links for instance.
            is_free = self._files.links(descriptor) == 1
        finally:
            if not is_free:
                self._files.close(descriptor)
        return descriptor if is_free else None

    def _create(self, temporary: str, directory: str, sync: bool) -> int:
        try:
            return self._files.create(temporary)
        except FileExistsError:
            # Nobody else's: a spare that must not be written over, or what an attempt has left
            # that failed or was only said to.
            with suppress(FileNotFoundError):
                self._files.unlink(temporary)
        except FileNotFoundError:
            # Somebody removed the directory since this instance made it.
            self._directories.forget(directory)
            self._directories.prepare(directory, sync)
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
