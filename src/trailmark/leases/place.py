"""Opens a lease at a path, or says why it cannot be there."""

from __future__ import annotations

import logging
import os
from datetime import timedelta

from trailmark.errors import NoPermission, SettingError, UnknownFormat
from trailmark.leases.terms import LONGEST_TERM_US, SHORTEST_TERM_US
from trailmark.log import Storage, open_storage
from trailmark.log.json_text import dump_guarded, load_guarded, read_text
from trailmark.log.meta import META_PATH
from trailmark.log.storage.urls import file_url_path, full_path, is_url, redacted
from trailmark.settings import Durability, LogSettings, format_duration, parse_duration

_log = logging.getLogger("trailmark")

LEASE_PATH = "lease.json"
_VERSION = 1
#: What Spark keeps in a checkpoint.
_OF_SPARK = ("offsets", "commits")


def check_term(term: str | timedelta) -> int:
    """The length of a term in microseconds."""
    term_us = parse_duration(term, "term")
    if not SHORTEST_TERM_US <= term_us <= LONGEST_TERM_US:
        too = "short" if term_us < SHORTEST_TERM_US else "long"
        raise SettingError(
            f"A term of {format_duration(term_us)} is too {too}.",
            where="term",
            fix=f"Give at least {format_duration(SHORTEST_TERM_US)}, and longer than any pause of "
            f"the active process that is no failure; at most {format_duration(LONGEST_TERM_US)}.",
        )
    return term_us


def is_lease(storage: Storage) -> bool:
    """Whether a lease is kept here."""
    return storage.exists(LEASE_PATH)


def open_lease(
    path: str | os.PathLike[str], term_us: int | None = None, *, argument: str = "lease"
) -> tuple[str, Storage]:
    """The full path of a lease and its storage; it is begun if nothing is there.

    ``term_us`` is for whoever wants to have it: an answer that takes longer is of no use to them.
    Without it, others are only looked at. ``argument`` is what users call it.
    """
    if not isinstance(path, str | os.PathLike) or not os.fspath(path):
        raise SettingError(
            f"{argument} must be a directory or URL, got {path!r}.",
            where=argument,
            fix=f"For example {argument}='/shared/orders.lease' or 's3://bucket/orders.lease'. All "
            "that take part have to reach it.",
        )
    given = os.fspath(path)
    full = absolute(given)
    if not (is_url(given) or os.path.isabs(os.path.expanduser(given))):
        _log.warning(
            "lease %s: given as %r, which is another lease in any other working directory; give "
            "the full path",
            full,
            given,
        )
    storage = open_lease_storage(full, term_us)
    if not is_lease(storage):
        _check_apart(full, storage, argument)
        storage.publish(LEASE_PATH, [dump_guarded({"version": _VERSION}, "lease")])
    check_version(storage)
    return full, storage


def open_lease_storage(path: str, patience_us: int | None = None) -> Storage:
    """Not synced: after a power failure of the storage nobody is left who could go by it."""
    settings = LogSettings(durability=Durability.UNSYNCED)
    return open_storage(path, settings, patience_us=patience_us)


def check_version(storage: Storage) -> None:
    """Refuses what a later Trailmark has begun, or what is no lease."""
    body = load_guarded(read_text(storage, LEASE_PATH))
    if body is None or body.get("version") != _VERSION:
        raise UnknownFormat(
            "This is no lease that this Trailmark knows.",
            where=LEASE_PATH,
            fix="Use the Trailmark that has begun it, or another path for the lease.",
        )


def absolute(path: str) -> str:
    """The path as every process understands it."""
    return path if is_url(path) else full_path(path)


def _check_apart(path: str, storage: Storage, argument: str) -> None:
    """Refuses a place that is something else's."""
    for place in [path, *_above(path)]:
        if _holds_logs(place, is_own=place == path):
            inside = "the same path as" if place == path else "inside of"
            raise SettingError(
                f"The lease would be {inside} the logs at {redacted(place)}.",
                where=argument,
                fix="Give it a directory of its own, beside them.",
            )
    if any(storage.list(name) for name in _OF_SPARK):
        raise SettingError(
            f"{redacted(path)} is a checkpoint of Spark.",
            where=argument,
            fix="Give the lease a directory of its own, beside it.",
        )


def _holds_logs(place: str, *, is_own: bool) -> bool:
    try:
        return open_storage(place).exists(META_PATH)
    except NoPermission:
        if is_own:
            raise
        return False  # rights for a prefix are enough; who may not look there has no logs there


def _above(path: str) -> list[str]:
    """The directories that a path lies in, but for the root or the bucket."""
    if is_url(path) and file_url_path(path) is None:
        scheme, _, rest = path.partition("://")
        parts = rest.strip("/").split("/")
        return [f"{scheme}://{'/'.join(parts[:n])}" for n in range(len(parts) - 1, 0, -1)]
    at = file_url_path(path) or path
    above = []
    while (parent := os.path.dirname(at)) not in (at, "/"):
        above.append(parent)
        at = parent
    return above
