"""Where operators of this driver keep their logs."""

from __future__ import annotations

import os

from trailmark.errors import SettingError

#: Paths of the streaming operators this process has made, for the listener.
_known: dict[str, None] = {}


def absolute(path: str | os.PathLike[str]) -> str:
    """The path as every worker understands it, whatever its own working directory is."""
    if not isinstance(path, str | os.PathLike) or not os.fspath(path):
        raise SettingError(
            f"path must be a directory or URL, got {path!r}.",
            where="path",
            fix="For example path='/data/orders-average' or 's3://bucket/orders-average'.",
        )
    text = os.fspath(path)
    is_url = "://" in text or text[:5].lower() == "file:"
    return text if is_url else os.path.abspath(os.path.expanduser(text))


def remember(path: str) -> None:
    _known[path] = None


def known() -> list[str]:
    return list(_known)
