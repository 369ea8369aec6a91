"""The storages of this process, each opened once.

They remember which directories are safely on disk, and Spark uses its Python processes again for
later batches. Where the application has a lease, they are changed only while it has it.
"""

from __future__ import annotations

import os

from trailmark.log import Storage, open_storage
from trailmark.settings import LogSettings

#: As in `trailmark.leases.fence`, which is imported only where there is a lease.
_LEASE = "TRAILMARK_LEASE"

_opened: dict[tuple[str, LogSettings, str], Storage] = {}


def storage_at(path: str, settings: LogSettings | None = None) -> Storage:
    """The storage at a path, with these settings."""
    settings = settings or LogSettings()
    lease = os.environ.get(_LEASE, "")
    key = (path, settings, lease)
    if key not in _opened:
        _opened[key] = open_to_write(path, settings)
    return _opened[key]


def open_to_write(path: str, settings: LogSettings | None = None) -> Storage:
    """The same, opened once more."""
    storage = open_storage(path, settings)
    return _fenced(storage, path) if os.environ.get(_LEASE) else storage


def _fenced(storage: Storage, path: str) -> Storage:
    from trailmark.leases.fence import Fenced, pass_of_process

    passed = pass_of_process()
    return storage if passed is None or not passed.is_for(path) else Fenced(storage, passed)
