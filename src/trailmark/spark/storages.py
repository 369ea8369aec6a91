"""The storages of this process, each opened once.

They remember which directories are safely on disk, and Spark uses its Python processes again for
later batches. Where the application has a lease, they are changed only while it has it.
"""

from __future__ import annotations

from trailmark.log import Storage, open_storage
from trailmark.settings import LogSettings
from trailmark.streams.fencing import fenced, lease_in_use

_opened: dict[tuple[str, LogSettings, str], Storage] = {}


def storage_at(path: str, settings: LogSettings | None = None) -> Storage:
    """The storage at a path, with these settings."""
    settings = settings or LogSettings()
    key = (path, settings, lease_in_use())
    if key not in _opened:
        _opened[key] = open_to_write(path, settings)
    return _opened[key]


def open_to_write(path: str, settings: LogSettings | None = None) -> Storage:
    """The same, opened once more."""
    return fenced(open_storage(path, settings), path)
