"""An append that runs in the background."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Executor, Future

from trailmark.errors import BatchOrderError
from trailmark.log.segment import EncodedSegment
from trailmark.records import SegmentLink
from trailmark.values import dataclass


@dataclass(frozen=True, slots=True)
class Published:
    """The segment of a batch that is now in the log.

    ``created`` is False if another writer's was there before: ``checksum`` is then that of the
    other one, and whoever called decides what to do. ``bytes`` is what this call has written.
    """

    batch: int
    checksum: int
    created: bool
    bytes: int

    @property
    def link(self) -> SegmentLink:
        """What the next segment names as its previous one."""
        return SegmentLink(self.batch, self.checksum)


class Appending:
    """An append under way, in two steps: the segment is encoded, then it is published.

    The next append of the same log can begin as soon as this one is encoded, because by then its
    checksum is known; it is published only after this one is, so that the log never has a hole.
    """

    def __init__(
        self,
        batch: int,
        executor: Executor,
        previous: SegmentLink | Appending,
        encode: Callable[[SegmentLink], EncodedSegment],
        publish: Callable[[EncodedSegment, SegmentLink], Published],
    ) -> None:
        self.batch = batch
        self._previous = previous
        self._encode = encode
        self._publish = publish
        self._encoded: Future[SegmentLink] = Future()
        self._published = executor.submit(self._run)

    def link(self) -> SegmentLink:
        """The segment's link; waits until it is encoded."""
        return self._encoded.result()

    def result(self) -> Published:
        """Waits until the segment is in the log; raises what went wrong."""
        return self._published.result()

    def on_failure(self, tell: Callable[[BaseException], None]) -> None:
        """Tells what went wrong as soon as that is known, whether or not anybody asks for it."""

        def look(published: Future[Published]) -> None:
            error = published.exception()
            if error is not None:
                tell(error)

        self._published.add_done_callback(look)

    def is_done(self) -> bool:
        """Whether `result` answers at once."""
        return self._published.done()

    def _run(self) -> Published:
        try:
            previous = self._previous
            link = previous.link() if isinstance(previous, Appending) else previous
            encoded = self._encode(link)
        except BaseException as error:
            self._encoded.set_exception(error)  # whoever waits for the link must not wait forever
            raise
        self._encoded.set_result(SegmentLink(self.batch, encoded.checksum))
        if isinstance(previous, Appending):
            before = previous.result()
            self._previous = link  # do not keep the whole chain alive
            if before.link != link:
                raise _overtaken(before, self.batch)
        return self._publish(encoded, link)


def _overtaken(before: Published, batch: int) -> BatchOrderError:
    return BatchOrderError(
        f"Batch {batch} was made to follow our own batch {before.batch}, but the log holds "
        "another writer's.",
        where=f"batch {batch}",
        fix="Read the other writer's segment and go on from there.",
    )
