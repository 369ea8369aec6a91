"""Keeps an operator's logs apart from the files that its query reads."""

from __future__ import annotations

import os
import re
from fnmatch import fnmatchcase

from pyspark.sql import DataFrame

from trailmark.errors import SettingError
from trailmark.log.storage.urls import file_url_path, is_url, redacted
from trailmark.spark.internals import driver_directory, stream_sources

_ALTERNATIVES = re.compile(r"\{([^{}]*)\}")
_IS_PATTERN = re.compile(r"[*?\[{]")


def check_apart(df: DataFrame, location: str) -> None:
    """Refuses logs among the files of a source: the next batch would read them as data."""
    directory = driver_directory(df.sparkSession) or os.getcwd()
    logs = _names(location, directory)
    for source in stream_sources(df):
        (path,) = source.paths
        files = _names(path, directory)
        is_stream = source.format.lower() == "trailmark"
        is_met = files == logs if is_stream else _meet(files, logs)
        if is_met:
            raise SettingError(
                f"The operator's logs and its input would be in the same place: {location} and "
                f"{redacted(path)}.",
                where="path",
                fix="Give the operator a directory of its own, not in that of the input nor "
                "above it.",
            )


def _meet(files: list[str], logs: list[str]) -> bool:
    """Whether one of the two directories is, or is in, the other."""
    if not all(_matches(pattern, name) for pattern, name in zip(files, logs, strict=False)):
        return False
    # Spark passes over names that begin so.
    return not any(name.startswith(("_", ".")) for name in logs[len(files) :])


def _matches(pattern: str, name: str) -> bool:
    """Whether a name fits a pattern of Hadoop's, which has alternatives, and another sign for
    "none of these"."""
    found = _ALTERNATIVES.search(pattern)
    if found is None:
        return fnmatchcase(name, pattern.replace("[^", "[!"))
    start, end = pattern[: found.start()], pattern[found.end() :]
    return any(_matches(f"{start}{each}{end}", name) for each in found[1].split(","))


def _names(path: str, directory: str) -> list[str]:
    """The names that lead to a path; of a source's, some may be patterns."""
    local = file_url_path(path) if is_url(path) else os.path.join(directory, path)
    if local is None:
        store, _, rest = path.partition("://")
        bucket, _, below = rest.partition("/")
        scheme = re.sub("^s3[an]$", "s3", store.lower())
        return [f"{scheme}://{bucket}", *(name for name in below.split("/") if name)]
    names = [name for name in os.path.normpath(local).split("/") if name]
    fixed = next((n for n, name in enumerate(names) if _IS_PATTERN.search(name)), len(names))
    start = os.path.realpath(f"/{'/'.join(names[:fixed])}").strip("/")
    return [*(start.split("/") if start else []), *names[fixed:]]
