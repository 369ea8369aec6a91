"""Figures for Prometheus of the operators of this driver."""

from __future__ import annotations

import threading

from trailmark.errors import LogError, SettingError, StorageError
from trailmark.log import open_storage
from trailmark.log.meta import META_PATH
from trailmark.metrics import MetricsServer, serve_metrics
from trailmark.spark import paths

_MOST_PORT = 65_535

_servers: dict[int, MetricsServer] = {}
_lock = threading.Lock()


def metrics_on(port: int) -> MetricsServer:
    """The server on a port of this machine; a cell of a notebook that is run again gets the one it
    has made."""
    if isinstance(port, bool) or not isinstance(port, int) or not 0 <= port <= _MOST_PORT:
        raise SettingError(
            f"metrics must be a port, got {port!r}.",
            where="metrics",
            fix="For example metrics=9090, or metrics=0 for any port that is free.",
        )
    with _lock:
        known = _servers.get(port) if port else None
        if known is None or known.is_closed:
            known = serve_metrics(_begun, port=port)
            _servers[known.port] = known
        return known


def _begun() -> list[str]:
    """Operators that have logs: one that was only declared has none yet."""
    return [path for path in paths.known() if _has_logs(path)]


def _has_logs(path: str) -> bool:
    try:
        return open_storage(path).exists(META_PATH)
    except (LogError, StorageError):
        return True  # the look says what is wrong
