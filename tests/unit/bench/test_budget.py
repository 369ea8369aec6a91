"""When windows opened and closed, for response times."""

from __future__ import annotations

import numpy as np

from bench.experiments.budget import lives
from bench.orders import WINDOW


def test_lives_of_windows_equal_those_found_one_order_at_a_time() -> None:
    rng = np.random.default_rng(3)
    batches = [rng.integers(0, 7, rng.integers(0, 60), dtype=np.int32) for _ in range(30)]
    open_since: dict[int, tuple[int, int]] = {}
    expected = []
    for number, ids in enumerate(batches):
        for item in ids.tolist():
            opened, orders = open_since.get(item, (number, 0))
            open_since[item] = (opened, orders + 1)
            if orders + 1 == WINDOW:
                expected.append((opened, number))
                del open_since[item]
    opened_in, closed_in = lives(batches, items=7)
    found = list(zip(opened_in.tolist(), closed_in.tolist(), strict=True))
    assert sorted(found) == sorted(expected)
    assert len(expected) > 30
