"""Persistent streams: written as logs, queried, replayed and followed. Nothing here needs Spark.

A *written stream* has no operator. Its rows are in data files that many tasks write at once; a
batch exists from the moment its manifest, which names its files, is in the log of batches. `writer`
does both, `retention` removes the old end again.

A *view* reads a written stream, or an operator's logs, batch by batch: committed batches only.
`table` gives them to those who have no Spark.
"""

import typing as _typing

if _typing.TYPE_CHECKING:
    from trailmark.streams.description import StreamDescription, is_stream
    from trailmark.streams.retention import Retention
    from trailmark.streams.table import read_table
    from trailmark.streams.view import StreamView, open_view
    from trailmark.streams.writer import StreamWriter

__all__ = [
    "Retention",
    "StreamDescription",
    "StreamView",
    "StreamWriter",
    "is_stream",
    "open_view",
    "read_table",
]

_MODULES = {
    "Retention": "retention",
    "StreamDescription": "description",
    "StreamView": "view",
    "StreamWriter": "writer",
    "is_stream": "description",
    "open_view": "view",
    "read_table": "table",
}


def __getattr__(name: str) -> _typing.Any:
    """Imported when it is used: a process that only commits does without the views."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(f"{__name__}.{_MODULES[name]}"), name)
