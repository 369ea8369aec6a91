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
import os
from collections.abc import Sequence
from contextlib import suppress

from trailmark.log.clock import Clock, wall_clock_us
from trailmark.log.storage.directories import Directories
from trailmark.log.storage.faults import refuse_without_hard_links, translated
from trailmark.log.storage.file_system import FileSystem, OperatingSystem
from trailmark.log.storage.paths import aside_path, check_path, split_path
from trailmark.log.storage.protocol import Entry, Part, is_made_of
from trailmark.log.storage.spares import spare_name
from trailmark.log.storage.temporaries import is_left_over
from trailmark.log.storage.writing import Writing
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
        self._synced = durability is Durability.SYNCED
        self._files: FileSystem = OperatingSystem() if file_system is None else file_system
        self._clock = clock
        self._directories = Directories(os.path.abspath(root), self._files)
        # Names that are not synced may come back after a power failure, next to the file that was
        # written over theirs.
        self._writing = Writing(self._files, self._directories, over_spares=self._synced)
        self._not_synced: set[str] = set()

    def publish(self, path: str, parts: Sequence[Part], *, force_sync: bool = False) -> bool:
        final = self._at(path)
        sync = force_sync or self._synced
        with translated("publish the file", final, missing_is_fault=True):
            with self._writing.written_aside(path, parts, sync) as temporary:
                created = self._writing.with_room(lambda: self._link(temporary, final))
            if sync and created:
                self._files.sync_directory(os.path.dirname(final))
            elif sync:
                self._settle_winner(path)
        return created

    def replace(self, path: str, parts: Sequence[Part]) -> None:
        final = self._at(path)
        with (
            translated("replace the file", final, missing_is_fault=True),
            self._writing.written_aside(path, parts, self._synced) as temporary,
        ):
            # The directory is not synced: either version will do, and both are whole.
            self._rename_over(temporary, final, parts)

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
            # Spares of a time when names were synced only take room.
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
            with suppress(FileNotFoundError):  # not the first request to take it away
                self._files.unlink(source)
            self._files.sync_directory(os.path.dirname(source))
        return target

    def clean(self, directory: str) -> builtins.list[str]:
        removed = []
        where = self._at(directory)
        try:
            with translated("remove left-over temporaries", where):
                found = self._files.list_directory(where)
                # Our clock may be ahead. What others have written since tells the time, too.
                now_us = min(self._clock(), max((e.changed_us for e in found), default=0))
                for entry in found:
                    if is_left_over(entry.name, entry.changed_us, now_us):
                        with suppress(FileNotFoundError):  # somebody else cleans up, too
                            self._files.unlink(f"{where}/{entry.name}")
                        removed.append(entry.name)
        except FileNotFoundError:
            return []
        return sorted(removed)

    def _at(self, path: str) -> str:
        return self._directories.at(check_path(path) if path else "")

    def _link(self, source: str, target: str) -> bool:
        """Gives a file a second name; False if another file has it.

        A network file system repeats a request to which it got no answer, and reports what came of
        the second one. So what is there counts, not what was said.
        """
        try:
            self._files.link(source, target)
            return True
        except OSError as error:
            failure = error
        try:
            return self._files.is_same(source, target)
        except FileNotFoundError:
            if isinstance(failure, FileExistsError):
                return False  # another's, and gone since
        except OSError:
            pass  # nobody can tell
        refuse_without_hard_links(failure, target)
        raise failure

    def _link_aside(self, path: str) -> str:
        earlier = 0
        while True:
            target = aside_path(path, earlier)
            self._directories.prepare(split_path(target)[0], sync=True)
            if self._link(self._at(path), self._at(target)):
                return target
            earlier += 1

    def _rename_over(self, temporary: str, final: str, parts: Sequence[Part]) -> None:
        try:
            self._files.rename(temporary, final)
        except OSError:
            # As for a link: what is there counts.
            if not self._holds(final, parts):
                raise

    def _holds(self, final: str, parts: Sequence[Part]) -> bool:
        try:
            return is_made_of(self._files.read(final, 0, None)[0], parts)
        except OSError:
            return False

    def _settle(self, path: str) -> None:
        self._directories.prepare(split_path(path)[0], sync=True)
        self._sync_file(path)
        self._files.sync_directory(os.path.dirname(self._at(path)))

    def _sync_file(self, path: str) -> None:
        """Puts a file on disk; one whose sync has failed, as a copy that takes its name.

        Linux reports once that it could not write bytes, and then takes them for written: to sync
        them again would succeed, and a power failure take them all the same.
        """
        final = self._at(path)
        if final not in self._not_synced:
            try:
                self._files.sync_file(final)
            except (FileNotFoundError, PermissionError):
                raise  # it could not even be opened
            except OSError:
                self._not_synced.add(final)
            else:
                return
        content = self._files.read(final, 0, None)[0]
        with self._writing.written_aside(path, [content], sync=True) as temporary:
            self._rename_over(temporary, final, [content])
        self._not_synced.discard(final)

    def _settle_winner(self, path: str) -> None:
        # The winner may not have come as far as the last sync, or may not sync at all. Without
        # this the caller could act on a file that a power failure then takes away.
        try:
            self._settle(path)
        except FileNotFoundError:
            return  # merged or trimmed since: it was there, and has served
