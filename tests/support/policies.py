"""Random policies, with targets and budgets small enough to bite."""

from __future__ import annotations

import random

from trailmark.checkpoint.policy import Continuous, NoCheckpoint, Policy


def random_policy(rng: random.Random) -> Policy:
    kind = rng.randrange(6)
    if kind == 0:
        return NoCheckpoint()
    if kind == 1:
        return Continuous()
    q = rng.randrange(60) if kind in (2, 4, 5) else None
    u = rng.randrange(60) if kind in (3, 4, 5) else None
    if kind == 5:
        return Continuous(q=q, u=u, interval="50 us", period="200 us")
    return Continuous(q=q, u=u)
