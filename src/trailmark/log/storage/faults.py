"""Turns what an operating system reports into the errors of the one tree."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager

from trailmark.errors import DiskFull, NoPermission, StorageError

_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
_REFUSED = frozenset({errno.EACCES, errno.EPERM, errno.EROFS})


@contextmanager
def translated(action: str, where: str, *, missing_is_fault: bool = False) -> Iterator[None]:
    """Runs a block of file calls and translates the ``OSError`` it raises.

    ``action`` completes the sentence "Could not ...". ``FileNotFoundError`` passes as it is where
    a missing file is an answer, not a fault.
    """
    try:
        yield
    except OSError as error:
        if isinstance(error, FileNotFoundError) and not missing_is_fault:
            raise
        raise _error_for(error, action, where) from error


def _error_for(error: OSError, action: str, where: str) -> StorageError:
    reason = os.strerror(error.errno) if error.errno is not None else str(error)
    what = f"Could not {action}: {reason}."
    if error.errno in _FULL:
        return DiskFull(
            what,
            where=where,
            fix="Make room (or raise the quota or file size limit) and start again: "
            "everything published before is whole.",
        )
    if error.errno in _REFUSED:
        return NoPermission(
            what,
            where=where,
            fix="Give this user read and write access; the file system must be mounted writable "
            "and allow hard links.",
        )
    return StorageError(
        what,
        where=where,
        fix="Look at the state of the disk or mount, then start again: "
        "everything published before is whole.",
    )
