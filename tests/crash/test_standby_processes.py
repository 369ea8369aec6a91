"""Two drivers of one script with `tm.standby`: killed, put to sleep and told to end, in turn."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.support.seeds import seeds
from tests.support.standbys import Pair


@pytest.mark.parametrize("seed", seeds(1))
def test_whatever_becomes_of_the_active_one_every_result_is_there_once(
    tmp_path: Path, seed: int
) -> None:
    print(f"TRAILMARK_SEED={seed} TRAILMARK_CASES=1 repeats it, but for the moments.")
    with ExitStack() as until_the_end:
        pair = Pair(tmp_path, seed, until_the_end)
        pair.feed()
        pair.start()
        pair.start()  # at the same moment: one is active, the other waits
        pair.wait_for_active()
        for harm in (Pair.kill, Pair.stop_and_wake, Pair.kill_jvm, Pair.terminate):
            pair.wait_for_waiting()
            harm(pair)
        pair.wait_for_waiting()
        pair.finish()
        print(pair.gaps_s)
