"""Sources that only Trailmark's own functions read from: made known to a session once."""

from __future__ import annotations

from weakref import WeakKeyDictionary

from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource

_known: WeakKeyDictionary[SparkSession, set[type[DataSource]]] = WeakKeyDictionary()


def register_once(session: SparkSession, source: type[DataSource]) -> None:
    """Makes a source known to a session, if it is not yet."""
    known = _known.setdefault(session, set())
    if source not in known:
        session.dataSource.register(source)
        known.add(source)


def register_again(session: SparkSession) -> None:
    """Makes all of them known once more: their processes get the environment as it is then."""
    for source in _known.get(session, ()):
        session.dataSource.register(source)
