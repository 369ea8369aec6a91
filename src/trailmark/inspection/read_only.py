"""A storage that can only be looked at."""

from __future__ import annotations

import builtins
from collections.abc import Callable, Sequence
from typing import NoReturn

from trailmark.errors import NoPermission
from trailmark.log.storage import Entry, Part, Storage


def ignore(*_: object) -> None:
    """What those who do not show progress do with what they are told."""


class ReadOnly:
    """Passes looks on to a storage and refuses everything that would change it.

    Parameters
    ----------
    storage
        What is looked at.
    on_read
        Told how many bytes every read gave, for whoever shows progress.
    """

    def __init__(self, storage: Storage, on_read: Callable[[int], None] = ignore) -> None:
        self._storage = storage
        self._on_read = on_read

    def read(self, path: str, offset: int = 0, length: int | None = None) -> memoryview:
        data = self._storage.read(path, offset, length)
        self._on_read(len(data))
        return data

    def read_tail(self, path: str, length: int) -> tuple[memoryview, int]:
        data, size = self._storage.read_tail(path, length)
        self._on_read(len(data))
        return data, size

    def size(self, path: str) -> int:
        return self._storage.size(path)

    def exists(self, path: str) -> bool:
        return self._storage.exists(path)

    def list(self, directory: str) -> builtins.list[Entry]:
        return self._storage.list(directory)

    def directories(self, directory: str) -> builtins.list[str]:
        return self._storage.directories(directory)

    def publish(self, path: str, parts: Sequence[Part], *, force_sync: bool = False) -> NoReturn:
        raise _refused("publish", path)

    def replace(self, path: str, parts: Sequence[Part]) -> NoReturn:
        raise _refused("replace", path)

    def settle(self, path: str) -> NoReturn:
        raise _refused("sync", path)

    def delete(self, path: str, *, synced: bool = True) -> NoReturn:
        raise _refused("delete", path)

    def recycle(self, path: str) -> NoReturn:
        raise _refused("recycle", path)

    def set_aside(self, path: str) -> NoReturn:
        raise _refused("set aside", path)

    def clean(self, directory: str) -> NoReturn:
        raise _refused("clean", directory)


def _refused(action: str, path: str) -> NoPermission:
    return NoPermission(
        f"Refused to {action} a file: the logs are only being looked at.",
        where=path,
        fix="This is an error of Trailmark. Please report it; nothing was changed.",
    )
