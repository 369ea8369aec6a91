"""What a union tells of on the logger `trailmark`."""

from __future__ import annotations

import logging
from collections.abc import Collection, Sequence

from trailmark import units
from trailmark.streams.asking import Unreached
from trailmark.streams.union.ahead import Phase
from trailmark.streams.union.decision import Decision
from trailmark.streams.union.inputs import SeenBatch

_log = logging.getLogger("trailmark")


def tell_of_phases(start: Decision, end: Decision) -> None:
    """Every move from one phase to another, with its reason."""
    if end.waits_for_turn and not start.waits_for_turn:
        _tell_of_waiting(end)
        return
    if start.phase is end.phase:
        return
    ahead = end.ahead
    if ahead is None:
        _log.warning(
            "union: STABLE. All streams are complete up to %s, and what was tentative is replaced.",
            _time(end.released_us),
        )
    elif ahead.phase is Phase.UP_FAILURE:
        missing = [_missing(name, end) for name in ahead.missing]
        _log.warning(
            "union: UP_FAILURE. Missing: %s. What the other streams have from %s to %s is given "
            "out as tentative.",
            ", ".join(missing),
            _time(end.released_us),
            _time(ahead.until_us),
        )
    else:
        _log.warning(
            "union: STABILIZATION. All streams are back; what is tentative from %s to %s is being "
            "replaced%s.",
            _time(end.released_us),
            _time(ahead.until_us),
            "" if end.turn is None else ", in its turn among the replicas",
        )


def _tell_of_waiting(end: Decision) -> None:
    assert end.turn is not None
    _log.warning(
        "union: %s. All streams are back, and it %s. Until then it goes on answering, and what is "
        "tentative from %s on is not replaced.",
        end.phase.value,
        end.turn.line,
        _time(end.released_us),
    )


class TellOfStreams:
    """Implements ``Told`` for the streams of a union."""

    def gone(self, name: str, unreached: Unreached) -> None:
        """One does not answer, and what becomes of the others."""
        _log.warning(
            "union: input %s cannot be reached since %s: %s. Nothing that needs it is released "
            "until it can; with answer_within, the others are answered without it.",
            name,
            _time(unreached.since_us),
            unreached.why,
        )

    def back(self, name: str, after_us: float) -> None:
        """It answers again."""
        _log.warning(
            "union: input %s can be reached again, after %s.", name, units.duration(after_us)
        )


def tell_of_far_ahead(name: str, boundary_us: int, by_us: int) -> None:
    """That the times of a stream cannot be right."""
    _log.warning(
        "union: input %s says that it is complete up to %s, %s from now: a row of it has a wrong "
        "time, or its writer a wrong clock. Whatever comes to it from now on with an earlier time "
        "is late: left out, and counted. Write it to a stream of its own again, without that row.",
        name,
        _time(boundary_us),
        units.duration(by_us),
    )


def tell_of_none_to_end(name: str) -> None:
    """That a stream is still waited for though it was to be ended by now."""
    _log.warning(
        "union: input %s has been missing for too long (give_up_after), but it cannot be reached, "
        "so that nobody else would know of its end: it is not ended, and waited for.",
        name,
    )


def tell_of_end(name: str, start: Decision, is_ended: bool) -> None:
    """That a stream is not waited for any more."""
    if is_ended:
        reached = start.inputs.get(name)
        _log.warning(
            "union: input %s has been missing for too long (give_up_after) and is ended: it was "
            "complete up to %s, and what comes to it from now on is late for all who read it.",
            name,
            _time(None if reached is None else reached.boundary_us),
        )


def tell_of_idle(idle: Collection[str], back: Collection[str], after_us: int) -> None:
    """That streams are not waited for any more, or again."""
    for name in sorted(idle):
        _log.info(
            "union: input %s has had nothing new for %s (idle_after). The others go on without it.",
            name,
            units.duration(after_us),
        )
    for name in sorted(back):
        _log.info("union: input %s is waited for again.", name)


def tell_of_timeless(name: str, batches: Sequence[SeenBatch]) -> None:
    """Files of which no row has a time are in no piece, so nobody else would."""
    for batch in batches:
        rows = sum(file.rows for file in batch.files if file.time_range is None)
        if rows:
            _log.warning(
                "input %s: %d rows of batch %d have no time, so no place in the order; they are "
                "left out.",
                name,
                rows,
                batch.batch,
            )


def _missing(name: str, end: Decision) -> str:
    reached = end.inputs.get(name)
    away = ", cannot be reached" if name in end.unreachable else ""
    return f"{name} (up to {_time(None if reached is None else reached.boundary_us)}{away})"


def _time(time_us: int | None) -> str:
    return "no time" if time_us is None else units.moment(time_us)
