"""Tentative results: what a fork of the state gives for tuples whose input is not complete.

Nothing of it is kept between batches. Every batch forks the state anew, takes the tentative tuples
that still stand in from the input log without a word, and then those that are new. So there is
nothing to recover, a batch that is done again gives the same results, and whatever has been
corrected meanwhile counts.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa

from trailmark.engine.tentative import Tentative
from trailmark.kernel.columns import contiguous
from trailmark.log import LogIdentity, Origin, PortRows, Segment, StreamLog, read_tentative
from trailmark.operators.fork import Fork
from trailmark.operators.protocol import AnyOperator, BatchInput, History, Port, State
from trailmark.records import CLOCK, FrameKind
from trailmark.recovery.restore import logged_time
from trailmark.values import dataclass

_log = logging.getLogger("trailmark")

#: Tuples that a fork takes in again, at most, and the batches that they came in: what came before
#: is left out. Every batch does this. Several million tuples a second are processed, and a batch
#: takes two milliseconds however few it has.
MOST_AGAIN, MOST_BATCHES = 2_000_000, 250

#: The buckets of which this process has said that it leaves some out: on Spark every batch has a
#: `Forking` of its own.
_warned: set[LogIdentity] = set()


@dataclass(frozen=True, slots=True)
class Answered:
    """What a fork gave: results as they are logged, and of how many batches tuples that still stand
    were left out, because there are too many."""

    results: pa.RecordBatch
    left_out: int = 0


class Forking:
    """The forks of one bucket."""

    def __init__(
        self,
        operator: AnyOperator,
        inputs: StreamLog,
        history: History,
        most_again: int = MOST_AGAIN,
        most_batches: int = MOST_BATCHES,
    ) -> None:
        self._operator = operator
        self._inputs = inputs
        self._history = history
        self._most_again = most_again
        self._most_batches = most_batches

    def answer(
        self, state: State, given: BatchInput, rows: PortRows | None, tentative: Tentative
    ) -> Answered:
        """The results of the tentative tuples of a batch, on top of the state after the stable
        ones."""
        ports = self._operator.ports
        again, left_out = self._again(tentative.stands_from, given.batch)
        fork = Fork(self._operator, state, self._history)
        try:
            number = given.batch
            for segment in again:
                earlier = read_tentative(segment, ports) or _no_rows(ports)
                facts = Tentative.logged(segment.footer, segment.origin)
                if facts is None:
                    raise segment.origin.mismatch(0, "nothing is tentative, and yet it stands")
                now_us = logged_time(segment.footer, CLOCK, segment.origin)
                number += 1
                fork.process(_as_batch(number, earlier, facts, now_us, given.watermark))
            if rows is None:
                rows = _no_rows(ports)
            live = _as_batch(number + 1, rows, tentative, given.now_us, given.watermark)
            return Answered(fork.process(live).results, left_out)
        finally:
            fork.close()

    def _again(self, first: int, batch: int) -> tuple[Iterator[Segment], int]:
        """The segments whose tentative tuples still stand, and how many batches of such are left
        out before them."""
        taken, begin = 0, batch
        for each in reversed(range(max(first, batch - self._most_batches), batch)):
            count = self._count(each)
            if taken and taken + count > self._most_again:
                break
            taken, begin = taken + count, each
        who = self._inputs.identity
        if begin > first and who not in _warned:
            _warned.add(who)
            _log.warning(
                "bucket %d: tentative tuples of %d batches are too many to be taken into account "
                "with every batch; tentative results go by the last %d of these. Stable ones go by "
                "all.",
                who.bucket,
                batch - first,
                batch - begin,
            )
        # A batch without such tuples may have closed windows all the same: it is asked, too.
        return (self._inputs.read(each) for each in range(begin, batch)), begin - first

    def _count(self, batch: int) -> int:
        footer, _ = self._inputs.read_footer(batch)
        kinds = [FrameKind.tentative_of_port(port) for port in range(len(self._operator.ports))]
        return sum(footer.rows.get(kind, 0) for kind in kinds)


def check_told(rows: PortRows | None, tentative: Tentative | None, origin: Origin) -> None:
    """Tentative tuples come from a union that says so."""
    if rows is not None and rows.num_rows and tentative is None:
        raise origin.mismatch(0, "it has tentative tuples, and nothing is tentative")


def _as_batch(
    number: int,
    rows: PortRows,
    facts: Tentative,
    now_us: int | None,
    stable_us: int | None,
) -> BatchInput:
    """Tentative tuples as a batch of their own, behind all that are stable.

    What the stable watermark has passed since they came is over for them, too.
    """
    batch = BatchInput.of(number, rows, facts.before, facts.at, now_us)
    if stable_us is None:
        return batch
    return replace(
        batch,
        late_before=_later(batch.late_before, stable_us),
        watermark=_later(batch.watermark, stable_us),
    )


def _later(time_us: int | None, other_us: int) -> int:
    return other_us if time_us is None else max(time_us, other_us)


def _no_rows(ports: Sequence[Port]) -> PortRows:
    tables = tuple(contiguous(port.schema.empty_table()) for port in ports)
    return PortRows(tables, None if len(tables) == 1 else np.zeros(0, dtype=np.uint8))
