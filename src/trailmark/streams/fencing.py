"""The logs of an application that has a lease: changed only while it has it."""

from __future__ import annotations

import os

from trailmark.log import Storage

#: As in `trailmark.leases.fence`, which is imported only where there is a lease.
_LEASE = "TRAILMARK_LEASE"


def lease_in_use() -> str:
    """The pass of this process, as it was handed on; empty if its application has no lease."""
    return os.environ.get(_LEASE, "")


def fenced(storage: Storage, path: str) -> Storage:
    """The same storage, behind the fence of the application's lease if it has one."""
    if not lease_in_use():
        return storage
    from trailmark.leases.fence import Fenced, pass_of_process

    passed = pass_of_process()
    return storage if passed is None or not passed.is_for(path) else Fenced(storage, passed)
