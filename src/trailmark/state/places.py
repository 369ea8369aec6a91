"""Which directories a host keeps its tables in: first in shared memory, then on disk.

Both are below directories that every user of the host may write to, so somebody else may have taken
our name there: by mistake, or to slip tables in. What is not ours alone is left alone, and another
name is used, which the other processes of this user find again.
"""

from __future__ import annotations

import logging
import os
import secrets
import stat
from collections.abc import Iterable
from pathlib import Path

_log = logging.getLogger("trailmark")


def default_roots() -> list[Path]:
    """Memory that processes share, and temporary files for what does not fit there."""
    return private_roots([Path("/dev/shm"), Path(os.environ.get("TMPDIR") or "/tmp")])


def private_roots(bases: Iterable[Path]) -> list[Path]:
    """A directory of our own in each of ``bases`` where one can be made."""
    roots: dict[Path, None] = {}
    for base in bases:
        try:
            roots[_private_root(base)] = None
        except OSError:
            continue  # there is no such file system here, or it cannot be written
    return list(roots)


def is_private(directory: Path) -> bool:
    """Whether it is a directory, no link to one, and nobody but us can write there."""
    found = directory.lstat()
    is_ours = stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid()
    return is_ours and not found.st_mode & 0o022


def _private_root(base: Path) -> Path:
    wanted = base / f"trailmark-{os.geteuid()}"
    try:
        wanted.mkdir(mode=0o700)
    except FileExistsError:
        if not is_private(wanted):
            return _other_root(wanted)
    return wanted


def _other_root(taken: Path) -> Path:
    """The same for all processes, though several may look for it, and make one, at a time."""
    if not _own_roots_beside(taken):
        made = taken.with_name(f"{taken.name}-{secrets.token_hex(8)}")
        made.mkdir(mode=0o700)
        _log.warning(
            "%s is not a directory that only this user can write: state is kept in %s instead. "
            "Remove the former, or set cache_dir.",
            taken,
            made,
        )
    return _own_roots_beside(taken)[0]


def _own_roots_beside(taken: Path) -> list[Path]:
    return sorted(path for path in taken.parent.glob(f"{taken.name}-*") if is_private(path))
