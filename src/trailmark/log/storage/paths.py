"""Paths inside a storage: relative, and never leading out of it."""

from __future__ import annotations

from trailmark.errors import SettingError

#: Where damaged files are moved to, below the root.
ASIDE = "aside"


def check_path(path: str) -> str:
    """The path as it is, if it stays below the root; refused otherwise.

    Names beginning with a dot are kept for temporaries, which also rules out ``.`` and ``..``.
    """
    for name in path.split("/"):
        if not name or name.startswith(".") or "\0" in name:
            raise SettingError(
                f"{path!r} is not a path inside the storage.",
                where="path",
                fix="Use names joined by '/', none of them empty or beginning with a dot.",
            )
    return path


def split_path(path: str) -> tuple[str, str]:
    """Directory and name; the directory is empty for a file at the root."""
    directory, _, name = path.rpartition("/")
    return directory, name


def ancestors(directory: str) -> list[str]:
    """The directory and those above it, outermost first, without the root.

    >>> ancestors("in/00001")
    ['in', 'in/00001']
    """
    names = directory.split("/") if directory else []
    return ["/".join(names[: end + 1]) for end in range(len(names))]


def aside_path(path: str, earlier: int) -> str:
    """Where the file goes when ``earlier`` files of the same path have been set aside before."""
    return f"{ASIDE}/{path}" if earlier == 0 else f"{ASIDE}/{path}.{earlier}"
