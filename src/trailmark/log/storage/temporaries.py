"""Names of half-written files, and whether their writer is still alive.

A name tells who writes: ``.<final name>.<host>.<process>.<random>.tmp``. The host part stands for
one numbering of processes: that of one host from its start to its end, or of one container. So a
process number is only ever looked up where it means something, however many hosts have one name.
"""

from __future__ import annotations

import functools
import os
import re
import secrets
import socket
import threading
import zlib
from collections.abc import Iterator
from contextlib import contextmanager

#: Files of other hosts, whose processes cannot be looked up, count as left over after this time.
#: Writing one takes seconds.
ABANDONED_AFTER_US = 3_600 * 1_000_000

_NAME = re.compile(r"\..+\.([0-9a-f]{8})\.([0-9]+)\.[0-9a-f]{16}\.tmp")

_BOOT_ID = "/proc/sys/kernel/random/boot_id"

_in_use: set[str] = set()
_in_use_lock = threading.Lock()


@contextmanager
def temporary_name(final_name: str) -> Iterator[str]:
    """A fresh name; nobody in this process takes it for a left-over while the block runs."""
    name = f".{final_name}.{_host()}.{os.getpid()}.{secrets.token_hex(8)}.tmp"
    with _in_use_lock:
        _in_use.add(name)
    try:
        yield name
    finally:
        with _in_use_lock:
            _in_use.discard(name)


def is_left_over(name: str, changed_us: int, now_us: int) -> bool:
    """Whether the file is a temporary whose writer is gone."""
    found = _NAME.fullmatch(name)
    if found is None:
        return False
    if found[1] != _host():
        return now_us - changed_us > ABANDONED_AFTER_US
    process = int(found[2])
    if process == os.getpid():
        # Process numbers come back, in a restarted container nearly always as the same one.
        with _in_use_lock:
            return name not in _in_use
    return not _is_running(process)


def _is_running(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True  # it runs, as somebody else
    return True


def _host() -> str:
    # Names of hosts repeat, and so do namespaces: their numbers are the same in every kernel.
    numbering = (socket.gethostname(), _boot_id(), *map(_namespace, ("pid", "uts", "net")))
    return f"{zlib.crc32(' '.join(numbering).encode()):08x}"


@functools.cache
def _boot_id() -> str:
    try:
        with open(_BOOT_ID, encoding="ascii") as file:
            return file.read().strip()
    except OSError:
        return ""  # not Linux


def _namespace(kind: str) -> str:
    try:
        return os.readlink(f"/proc/self/ns/{kind}")
    except OSError:
        return ""  # not Linux: one numbering per host
