"""What writers of a stream have promised, one row at a time: slow, and obviously right."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field


@dataclass
class PlainPromises:
    """Times are whole microseconds; ``own`` is the boundary of every writer that is waited for,
    ``gone`` that of those that are not any more."""

    own: dict[str, int | None] = field(default_factory=dict)
    gone: dict[str, int | None] = field(default_factory=dict)
    stream: int | None = None
    late_rows: list[int] = field(default_factory=list)
    #: Whether anybody has promised anything.
    is_told: bool = False

    def commit(
        self,
        writer: str | None,
        times: Sequence[int | None],
        delay: int | None,
        asked: int | None = None,
    ) -> None:
        """A batch with rows; ``delay`` if the writer promises anything."""
        self.late_rows.append(self._count(times, self.limits(writer, delay)))
        if writer is None or delay is None:
            return
        self.is_told = True
        reached = [time - delay for time in times if time is not None]
        if asked is not None:
            reached.append(asked - delay)
        self._reach(writer, reached)

    def limits(self, writer: str | None, delay: int | None) -> list[int | None]:
        """Rows that are committed now are late if they are before any of these."""
        if writer is None or delay is None:
            return [self.stream] if self.is_told else []
        return [self.own.get(writer, self.gone.get(writer)), self.stream]

    def heartbeat(self, writer: str, asked: int, delay: int) -> None:
        self.is_told = True
        self._reach(writer, [asked - delay])

    def let_go(self, writer: str) -> None:
        if writer in self.own:
            self.gone[writer] = self.own.pop(writer)
        self._look()

    def _count(self, times: Sequence[int | None], limits: Sequence[int | None]) -> int:
        late = 0
        for time in times:
            if time is not None and any(limit is not None and time < limit for limit in limits):
                late += 1
        return late

    def _reach(self, writer: str, reached: Sequence[int]) -> None:
        """A writer never goes back, and one that is new begins where the stream is."""
        before = [self.own.get(writer), self.gone.pop(writer, None), self.stream]
        known = [each for each in before if each is not None]
        self.own[writer] = max([*known, *reached], default=None)
        self._look()

    def _look(self) -> None:
        """The stream has come as far as the last of its writers, and never goes back."""
        if not self.own or None in self.own.values():
            return
        least = min(each for each in self.own.values() if each is not None)
        if self.stream is None or least > self.stream:
            self.stream = least
