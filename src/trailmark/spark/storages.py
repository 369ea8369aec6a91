"""The storages of this process, each opened once.

They remember which directories are safely on disk, and Spark uses its Python processes again for
later batches.
"""

from __future__ import annotations

from trailmark.log import Storage, open_storage
from trailmark.settings import LogSettings

_opened: dict[tuple[str, LogSettings], Storage] = {}


def storage_at(path: str, settings: LogSettings) -> Storage:
    """The storage at a path, with these settings."""
    key = (path, settings)
    if key not in _opened:
        _opened[key] = open_storage(path, settings)
    return _opened[key]
