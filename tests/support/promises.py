"""What writers of a stream have promised, one row at a time: slow, and obviously right."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field


@dataclass
class PlainPromises:
    """Times are whole microseconds; ``own`` is the boundary of every writer that promises."""

    own: dict[str, int | None] = field(default_factory=dict)
    stream: int | None = None
    late_rows: list[int] = field(default_factory=list)
    gone: dict[str, int | None] = field(default_factory=dict)
    #: Whether a batch says so: whoever promises nothing does not look for heartbeats alone.
    is_told: bool = False

    def commit(self, writer: str | None, times: Sequence[int | None], delay: int | None) -> None:
        """A batch with rows; ``delay`` if the writer promises anything."""
        is_known = writer is not None and delay is not None
        self.is_told = self.is_told or is_known
        limits = [self.stream] if self.is_told else []
        if is_known:
            limits.append(self.own.get(writer, self.gone.get(writer)))  # type: ignore[arg-type]
        late = 0
        for time in times:
            if time is not None and any(limit is not None and time < limit for limit in limits):
                late += 1
        self.late_rows.append(late)
        if is_known:
            assert writer is not None
            assert delay is not None
            self.own.setdefault(writer, self.gone.pop(writer, None))
            for time in times:
                if time is not None:
                    self._reach(writer, time - delay)
        self._look()

    def heartbeat(self, writer: str, asked: int, delay: int) -> None:
        self.own.setdefault(writer, self.gone.pop(writer, None))
        self._reach(writer, asked - delay)
        self._look()

    def let_go(self, writer: str) -> None:
        if writer in self.own:
            self.gone[writer] = self.own.pop(writer)
        self._look()

    def _reach(self, writer: str, boundary: int) -> None:
        before = self.own.get(writer)
        self.own[writer] = boundary if before is None or boundary > before else before

    def _look(self) -> None:
        """The stream has come as far as the last of its writers, and never goes back."""
        if not self.own or None in self.own.values():
            return
        least = min(each for each in self.own.values() if each is not None)
        if self.stream is None or least > self.stream:
            self.stream = least
