"""Which paths are looked at: those that were named, and what is in directories of them."""

from __future__ import annotations

from collections.abc import Sequence

from trailmark.errors import SettingError, StorageError
from trailmark.leases import LEASE_PATH
from trailmark.log import Storage, open_storage
from trailmark.log.meta import META_PATH
from trailmark.watch.place import find_lease, find_logs

#: Directories that are looked into below a path, and how deep.
_MOST = 1_000
_DEPTH = 2


class Places:
    """The paths of operators, streams, unions and leases; new ones appear while it is asked.

    Parameters
    ----------
    given
        Their paths, or directories of them, up to two levels down. One that holds nothing is
        refused.
    """

    def __init__(self, given: Sequence[str]) -> None:
        self._named: dict[str, None] = {}
        self._above: list[str] = []
        for path in dict.fromkeys(given):
            self._add(path)

    def __call__(self) -> list[str]:
        """All paths as of now, in the order in which they were given."""
        found = dict(self._named)
        for path in self._above:
            found |= dict.fromkeys(_below(path))
        return list(found)

    def _add(self, path: str) -> None:
        try:
            find_logs(path)
        except SettingError:
            if find_lease(path) is None:
                if not _below(path):
                    raise
                self._above.append(path)
                return
        self._named[path] = None


def _below(path: str) -> list[str]:
    """Paths of all logs and leases in a directory; what cannot be looked into is passed over."""
    try:
        names = _holding(open_storage(path), "", _DEPTH, [_MOST])
    except (StorageError, FileNotFoundError):
        return []
    return [f"{path.rstrip('/')}/{name}" for name in names]


def _holding(storage: Storage, directory: str, depth: int, left: list[int]) -> list[str]:
    found = []
    for name in sorted(storage.directories(directory)):
        if left[0] == 0:
            break
        left[0] -= 1
        below = f"{directory}/{name}" if directory else name
        try:
            if any(storage.exists(f"{below}/{each}") for each in (META_PATH, LEASE_PATH)):
                found.append(below)
            elif depth > 1:
                found += _holding(storage, below, depth - 1, left)
        except (StorageError, SettingError, FileNotFoundError):
            continue  # not ours to look into
    return found
