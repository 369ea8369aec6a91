"""Seeds of random runs: printed where one fails, and taken from the environment to repeat it.

``TRAILMARK_SEED`` is the first seed (default 0), ``TRAILMARK_CASES`` how many follow it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager


def seeds(count: int) -> range:
    first = int(os.environ.get("TRAILMARK_SEED", "0"))
    return range(first, first + int(os.environ.get("TRAILMARK_CASES", str(count))))


@contextmanager
def reported(seed: int, case: object) -> Iterator[None]:
    """Prints beside a failure what is needed to see it again."""
    try:
        yield
    except BaseException:
        print(f"TRAILMARK_SEED={seed} TRAILMARK_CASES=1 repeats it. The case:\n{case!r}")
        raise
