"""What a recovery costs per record and per tuple, measured where it happens.

A prediction is only as good as the rates behind it, so they are learnt while the bucket works: from
live batches (processing a tuple takes at least as long as replaying it) and from every recovery.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from typing import Any

#: Before anything was measured: what one core of a small virtual machine took, rounded up.
_OPEN_US = 20_000.0
_LOAD_US = 0.5
_REPLAY_US = 0.2

_SMOOTHING = 0.2
#: Fewer than these say more about fixed costs than about the cost of one.
_ENOUGH = 1_000


@dataclass(frozen=True, slots=True)
class Rates:
    """Microseconds that a recovery takes to begin, per record it reads, per tuple it replays."""

    open_us: float = _OPEN_US
    load_us_per_record: float = _LOAD_US
    replay_us_per_tuple: float = _REPLAY_US

    def predict_us(self, records: int, tuples: int) -> int:
        """How long a recovery would take."""
        return int(
            self.open_us + records * self.load_us_per_record + tuples * self.replay_us_per_tuple
        )

    def after_batch(self, tuples: int, took_us: float) -> Rates:
        """The rates after a live batch."""
        if tuples < _ENOUGH:
            return self
        replay = _smooth(self.replay_us_per_tuple, took_us / tuples)
        return replace(self, replay_us_per_tuple=replay)

    def after_recovery(self, records: int, load_us: int, tuples: int, replay_us: int) -> Rates:
        """The rates after a recovery that read and replayed so much."""
        load, replay = self.load_us_per_record, self.replay_us_per_tuple
        if records < _ENOUGH and tuples < _ENOUGH:
            # It took what it takes to begin.
            return replace(self, open_us=_smooth(self.open_us, load_us + replay_us))
        if records >= _ENOUGH:
            load = _smooth(load, load_us / records)
        if tuples >= _ENOUGH:
            replay = _smooth(replay, replay_us / tuples)
        return replace(self, load_us_per_record=load, replay_us_per_tuple=replay)

    def to_attributes(self) -> dict[str, Any]:
        return {name: round(value, 4) for name, value in asdict(self).items()}

    @classmethod
    def from_attributes(cls, attributes: Mapping[str, Any]) -> Rates:
        return cls(**{f.name: attributes[f.name] for f in fields(cls) if f.name in attributes})


def _smooth(before: float, measured: float) -> float:
    return before + _SMOOTHING * (measured - before)
