"""How much a streaming read takes at a time, on every version of Spark's interface."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from trailmark.streams.view import StreamBatch

#: Whether this Spark tells a source where its query stands.
TELLS_POSITION = True

if TYPE_CHECKING:
    from pyspark.sql.streaming.datasource import SupportsTriggerAvailableNow
else:
    try:
        from pyspark.sql.streaming.datasource import SupportsTriggerAvailableNow
    except ImportError:  # before 4.2 Spark takes everything that is there as one batch
        TELLS_POSITION = False

        class SupportsTriggerAvailableNow:
            """Stands in for an interface that this Spark does not have."""


__all__ = ["TELLS_POSITION", "ReadLimits", "SupportsTriggerAvailableNow"]


@dataclass(frozen=True, slots=True)
class ReadLimits:
    """Rows and bytes that a micro-batch takes at most; None where there is no limit.

    Batches of the stream are not split: one that is larger than the limit is read alone.
    """

    rows: int | None = None
    bytes: int | None = None

    def default(self) -> Any:
        """The limit in Spark's words. Of two limits it has words for only one."""
        from pyspark.sql.streaming import datasource

        if self.rows is not None:
            return datasource.ReadMaxRows(self.rows)
        if self.bytes is not None:
            return datasource.ReadMaxBytes(self.bytes)
        return datasource.ReadAllAvailable()

    def are_lifted_by(self, limit: object) -> bool:
        """Whether Spark asks for everything, whatever the options say."""
        return type(limit).__name__ == "ReadAllAvailable"

    @property
    def has_any(self) -> bool:
        """Whether there is a limit at all."""
        return self.rows is not None or self.bytes is not None

    def admits(self, rows: int, size: int, batch: StreamBatch) -> bool:
        """Whether a batch may be added to one that has so many rows and bytes already."""
        has_rows = self.rows is None or rows + batch.rows <= self.rows
        return has_rows and (self.bytes is None or size + batch.bytes <= self.bytes)
