"""The footers of a log's newest batches, read once each."""

from __future__ import annotations

from trailmark.errors import LogError, MissingSegment, UnknownFormat
from trailmark.log import Footer, StreamLog
from trailmark.log.catalog import Catalog
from trailmark.records import NO_BATCH, SegmentLink

#: A batch that was listed and is gone was set aside or trimmed meanwhile: look again so often.
_LOOKS = 5


class NewestFooters:
    """Reads the newest footers of a log, again and again, and remembers them.

    A remembered footer is used only where the segment behind it links to the very segment it is
    of: a log that was cut and written anew has other segments under the same names.
    """

    def __init__(self, log: StreamLog, most: int) -> None:
        self._log = log
        self._most = max(1, most)
        self._known: dict[int, tuple[Footer, int]] = {}

    def read(self) -> tuple[Catalog, list[Footer], str]:
        """What the log holds, its newest footers (newest first), and why the very newest is not
        among them, if it cannot be read; or else why another one is not, if it is unknown."""
        for _ in range(_LOOKS):
            catalog = self._log.reader.look()
            newest = catalog.newest()
            if newest == NO_BATCH:
                return catalog, [], ""
            try:
                first, problem = self._read(newest, None), ""
                break
            except MissingSegment as error:
                first, problem = None, error.what
            except LogError as error:
                first, problem = None, _text(error)
                break
        footers, unknown = self._walk(catalog, newest, first)
        self._known = {batch: self._known[batch] for batch in footers if batch in self._known}
        return catalog, list(footers.values()), problem or unknown

    def _walk(
        self, catalog: Catalog, newest: int, first: Footer | None
    ) -> tuple[dict[int, Footer], str]:
        """Footers from the newest down, by batch; what cannot be read is left out, and what is
        unknown is told."""
        found = {} if first is None else {newest: first}
        unknown = ""
        above = first
        for batch in range(newest - 1, max(catalog.oldest(), newest - self._most + 1) - 1, -1):
            try:
                above = self._read(batch, None if above is None else above.previous)
                found[batch] = above
            except MissingSegment:
                if self._log.start() > batch:
                    break  # trimmed meanwhile, and so is everything before it
                above = None
            except LogError as error:
                above = None  # verify says what is wrong with it
                if isinstance(error, UnknownFormat):
                    unknown = unknown or _text(error)
        return found, unknown

    def _read(self, batch: int, link: SegmentLink | None) -> Footer:
        """A footer; the remembered one if the link shows that it is still the same."""
        known = self._known.get(batch)
        if known is None or link is None or link != SegmentLink(batch, known[1]):
            known = self._known[batch] = self._log.read_footer(batch)
        return known[0]


def _text(error: LogError) -> str:
    return f"{error.what} ({error.where})"
