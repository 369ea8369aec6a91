"""What users write as a path: a directory or a URL, and never a secret."""

from __future__ import annotations

import os
import re
from urllib.parse import unquote

from trailmark.errors import SettingError
from trailmark.log.storage.providers import PROVIDERS, Provider

#: How URLs begin, also those that lack a slash. A single letter, or a name such as ``a:b``, is a
#: file's.
_SCHEME = re.compile(r"\s*([A-Za-z][A-Za-z0-9+.-]+):/")
#: This machine: `file:/path`, `file:///path` and `file://localhost/path`. Another host is refused.
_FILE_URL = re.compile(r"file:(?://(?:localhost)?)?(/(?!/).*)", re.IGNORECASE | re.DOTALL)
_STORE_URL = re.compile(r"(\w+)://([^/]+)(?:/.*)?", re.DOTALL)
_HIDDEN = "***"

_ADVICE = {
    "s3": "Write s3://bucket/prefix, with two slashes and a bucket.",
    "s3a": "Write s3://bucket/prefix: Trailmark talks to the store itself, not through Hadoop.",
    "gs": "Write gs://bucket/prefix, with two slashes and a bucket.",
    "az": "Write az://container/prefix, with two slashes and a container.",
    "abfss": "Write az://container/prefix, and set AZURE_STORAGE_ACCOUNT_NAME to the account.",
    "dbfs": "Use the directory it is mounted at, such as /dbfs/data/orders.",
}
_ADVICE |= {"s3n": _ADVICE["s3a"], **dict.fromkeys(("abfs", "wasb", "wasbs"), _ADVICE["abfss"])}
_GENERAL = "Use a path, file:///directory or s3://bucket/prefix."


def is_url(path: str) -> bool:
    """Whether this is meant as a URL, good or bad, not as a directory's path."""
    return "://" in path or path[:5].lower() == "file:" or _SCHEME.match(path) is not None


def full_path(path: str) -> str:
    """The directory that a path leads to from where this process is."""
    return os.path.abspath(os.path.expanduser(path))


def file_url_path(url: str) -> str | None:
    """The directory that a file's URL names; None if it is another URL, or another host's."""
    found = _FILE_URL.fullmatch(url)
    return None if found is None else unquote(found[1])


def provider_of(url: str) -> Provider:
    """Which store a URL is of. All that is not a bucket and a prefix is refused, without repeating
    what may be a secret."""
    found = _STORE_URL.fullmatch(url)
    provider = None if found is None else PROVIDERS.get(found[1].lower())
    if found is None or provider is None:
        raise no_storage(url)
    if ":" in found[2] or "@" in found[2] or "?" in url:
        raise SettingError(
            f"{redacted(url)!r} holds more than a {provider.container} and a prefix.",
            where="path",
            fix=f"Write {provider.scheme}://{provider.container}/prefix. Keys and settings do not "
            f"belong into a path, which is logged and shown: set {provider.secrets}.",
        )
    return provider


def redacted(url: str) -> str:
    """The URL without user, password and query; a directory's path as it is."""
    scheme = _SCHEME.match(url)
    if scheme is None:
        return url
    rest = url[scheme.end() :].lstrip("/")
    slashes = "/" * (len(url) - scheme.end() - len(rest) + 1)
    rest, query, _ = rest.partition("?")
    _, at, place = rest.rpartition("@")
    host, slash, below = place.partition("/")
    if not at and ":" in host and not host.rpartition(":")[2].isdecimal():
        place = f"{_HIDDEN}{slash}{below}"
    start = f"{_HIDDEN}@" if at else ""
    end = f"?{_HIDDEN}" if query else ""
    return f"{scheme[1]}:{slashes}{start}{place}{end}"


def no_storage(url: str) -> SettingError:
    """What to say of a URL that cannot be used."""
    scheme = _SCHEME.match(url)
    fix = _ADVICE.get(scheme[1].lower(), _GENERAL) if scheme is not None else _GENERAL
    if scheme is not None and "://" not in url:
        fix += f" If it is a directory of that name, write ./{redacted(url)}."
    return SettingError(f"{redacted(url)!r} names no storage.", where="path", fix=fix)
