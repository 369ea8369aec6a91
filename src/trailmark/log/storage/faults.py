"""Turns what an operating system reports into the errors of the one tree."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager

from trailmark.errors import DiskFull, NoPermission, StorageError, Unreachable

#: Whoever makes room may try again.
NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT})
_FULL = NO_ROOM | {errno.EFBIG}
_REFUSED = frozenset({errno.EACCES, errno.EPERM, errno.EROFS})
#: What mounts of a network report while their server does not answer; most of them know no word for
#: it but EIO, which a disk that fails says, too.
_AWAY = frozenset(
    {
        errno.ECONNABORTED,
        errno.ECONNREFUSED,
        errno.ECONNRESET,
        errno.EHOSTDOWN,
        errno.EHOSTUNREACH,
        errno.EIO,
        errno.ENETDOWN,
        errno.ENETUNREACH,
        errno.ENOTCONN,
        errno.ESHUTDOWN,
        errno.ESTALE,
        errno.ETIMEDOUT,
    }
)

_NO_HARD_LINKS = frozenset(
    {errno.EPERM, errno.EOPNOTSUPP, errno.ENOTSUP, errno.ENOSYS, errno.EMLINK}
)


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


def refuse_without_hard_links(error: OSError, where: str) -> None:
    """Says so where that is why a file could not be given its name."""
    if error.errno not in _NO_HARD_LINKS:
        return
    kind = NoPermission if error.errno in _REFUSED else StorageError
    raise kind(
        f"The file system does not let this user make hard links: {os.strerror(error.errno)}.",
        where=where,
        fix="A file gets its name by a hard link, so that it is whole or not there. Put the path "
        "on a file system that has them (ext4, XFS, NFS and most others; not FAT, exFAT and many "
        "shared or FUSE mounts), or use s3://bucket/prefix.",
    ) from error


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
            fix="Give this user read and write access; the file system must be mounted writable.",
        )
    kind = Unreachable if error.errno in _AWAY else StorageError
    return kind(
        what,
        where=where,
        fix="Look at the state of the disk or mount, then start again: "
        "everything published before is whole.",
    )
