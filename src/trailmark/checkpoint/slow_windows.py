"""`SlowWindows`: windows that stay open are checked once in a period, a few at a time."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from trailmark.checkpoint.chooser import Chooser
from trailmark.checkpoint.moment import Choice, Moment
from trailmark.checkpoint.noted import Fields, or_none, read_batch, read_count, read_time
from trailmark.state.table import Slots
from trailmark.values import dataclass

if TYPE_CHECKING:
    from trailmark.checkpoint.policy import SlowWindows


@dataclass(slots=True)
class SlowShots(Chooser):
    """The period it is in: when and after which batch it began, how many windows were slow then,
    how many of them a shot checks, and how many shots are done."""

    policy: SlowWindows
    began_us: float | None = None
    began_batch: int = 0
    slow: int = 0
    quota: int = 0
    done: int = 0

    FIELDS: ClassVar[Fields] = {
        "began_us": or_none(read_time),
        "began_batch": read_batch,
        **dict.fromkeys(("slow", "quota", "done"), read_count),
    }

    def check(self) -> None:
        if self.done > self.policy.shots:
            raise ValueError(f"{self.done} shots of {self.policy.shots} are done")

    def choose(self, moment: Moment) -> Choice:
        """Footprints of the windows that have none yet, then those of the shots that are due."""
        bare = np.concatenate([moment.opened, moment.take_bare()])
        checked, shots = self._shoot(moment, moment.now_us())
        moment.pieces.renew(checked, moment.batch)
        return Choice(bare, checked, why={"slow": self.slow, "shots": shots})

    def _shoot(self, moment: Moment, now: float) -> tuple[Slots, int]:
        """The windows that are checked now, and in how many shots."""
        began = -math.inf if self.began_us is None else min(self.began_us, now)
        elapsed = now - began
        if elapsed >= self.policy.period_us:
            self._begin_period(moment, now)
            elapsed = 0.0
        shots = self.policy.shots
        due = min(shots, 1 + int(elapsed * shots // self.policy.period_us))
        now_due = max(0, due - self.done)  # none where the clock went back
        self.done = max(due, self.done)
        return self._slow(moment, now_due * self.quota), now_due

    def _begin_period(self, moment: Moment, now: float) -> None:
        """All windows that are slow now are shared out over the shots of the period."""
        self.began_us = now
        self.began_batch = moment.batch
        self.slow = len(self._slow(moment, None))
        self.quota = -(-self.slow // self.policy.shots)
        self.done = 0

    def _slow(self, moment: Moment, most: int | None) -> Slots:
        """Windows that were slow when the period began and that it has not checked yet."""
        batches = math.ceil(self.policy.threshold_us / moment.rates.period_us)
        began = self.began_batch
        return moment.pieces.list_oldest(most, before=began, opened_before=began - batches + 1)
