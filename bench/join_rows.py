"""The tuples of two streams that are joined."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

KEYS = 100_000
#: Seconds of event time in a batch.
SECONDS = 10
#: The columns of both sides beside the key: a time and a value.
COLUMNS = {"left": ("seen", "bid"), "right": ("clicked", "price")}


def side(rows: int, batch: int, time: str, value: str, seed: int) -> pa.Table:
    """Tuples of one batch: about ten of a key, at any time of its seconds."""
    rng = np.random.default_rng((seed, batch))
    at = (1_700_000_000 + SECONDS * batch) * 1_000_000
    times = at + rng.integers(0, SECONDS * 1000, rows) * 1000
    return pa.table(
        {
            "key": rng.integers(0, KEYS, rows),
            time: pa.array(times, pa.timestamp("us", "UTC")),
            value: rng.integers(0, 1 << 40, rows),
        }
    )
