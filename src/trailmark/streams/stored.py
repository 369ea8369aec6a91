"""A written stream as whoever only has its files opens it."""

from __future__ import annotations

from trailmark.inspection.logs import existing_meta
from trailmark.log import Storage
from trailmark.settings import LogSettings
from trailmark.streams.description import StreamDescription
from trailmark.streams.manifest import manifest_log


class StreamFiles:
    """Opens the files of a written stream by what its description says."""

    def __init__(self, storage: Storage, settings: LogSettings | None = None) -> None:
        self.storage = storage
        self.meta = existing_meta(storage)
        self.description = StreamDescription.of(self.meta)
        self.log = manifest_log(storage, self.meta, settings)

    @property
    def buckets(self) -> range:
        """The numbers of the buckets."""
        return range(self.meta.buckets)
