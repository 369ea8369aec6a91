"""The directories of a local storage: made when first needed, put on disk from the root down."""

from __future__ import annotations

import os
from contextlib import suppress

from trailmark.errors import StorageError
from trailmark.log.storage.file_system import FileSystem
from trailmark.log.storage.paths import ancestors


class Directories:
    """Makes the directories below ``root``, and remembers which are there and which are on disk."""

    def __init__(self, root: str, files: FileSystem) -> None:
        self._root = root
        self._files = files
        self._made: set[str] = set()
        self._settled: set[str] = set()

    def at(self, directory: str) -> str:
        """Where a path below the root lies in the file system."""
        return os.path.join(self._root, directory) if directory else self._root

    def prepare(self, directory: str, sync: bool) -> None:
        """Make the directory; with ``sync``, make sure that its way down from the root lasts.

        That is done even for directories found there: whoever made them may not have synced them
        yet.
        """
        ready = self._settled if sync else self._made
        if directory in ready:
            return
        self._make_with_parents(self._root, sync)
        for step in ancestors(directory):
            self._make_below(self.at(step), sync)
        ready.add(directory)

    def forget(self, directory: str) -> None:
        """Somebody has removed it: it has to be made again."""
        self._made.discard(directory)
        self._settled.discard(directory)

    def _make_with_parents(self, path: str, sync: bool) -> None:
        try:
            self._make(path, sync)
        except FileNotFoundError:
            self._make_with_parents(os.path.dirname(path), sync)
            self._make_below(path, sync)

    def _make_below(self, path: str, sync: bool) -> None:
        """Makes a directory whose parent is there, or seems to be."""
        try:
            self._make(path, sync)
        except FileNotFoundError as error:
            raise StorageError(
                f"The directory {path} cannot be made.",
                where=self._root,
                fix=f"Look at {os.path.dirname(path)}: it may be a symbolic link to nowhere, or "
                "belong to a file system in which nobody can make directories, such as /proc. "
                "Mount or create what is missing, or choose another path.",
            ) from error

    def _make(self, path: str, sync: bool) -> None:
        with suppress(FileExistsError):
            self._files.make_directory(path)
        above = os.path.dirname(path)
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
