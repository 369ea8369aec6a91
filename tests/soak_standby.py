"""Kills, stops and wakes the active one of two drivers for as long as asked; runs random leases.

``python -m tests.soak_standby --seconds 600`` prints the first seed; every round has the next one.
A round is a pair of drivers, to which six things are done, and two hundred simulated leases.
"""

from __future__ import annotations

import argparse
import secrets
import statistics
import sys
import tempfile
import time
import traceback
from contextlib import ExitStack
from pathlib import Path

from tests.conftest import pytest_configure
from tests.support.leasing import run_lease_case
from tests.support.standbys import HARMS, Pair

_HARMS, _LEASES = 6, 200


def run_round(seed: int, gaps: dict[str, list[float]]) -> None:
    """One pair from its start to its end, judged."""
    for number in range(_LEASES):
        run_lease_case(seed * _LEASES + number)
    with tempfile.TemporaryDirectory(prefix="trailmark-soak-") as root, ExitStack() as to_the_end:
        pair = Pair(Path(root), seed, to_the_end)
        pair.feed()
        pair.start()
        pair.start()
        pair.wait_for_active()
        for _ in range(_HARMS):
            pair.wait_for_waiting(pair.rng.choice(("", "warm")))
            HARMS[pair.rng.choice(sorted(HARMS))](pair)
        pair.wait_for_waiting(pair.rng.choice(("", "warm")))
        pair.finish()
        for harm, gap_s in pair.gaps_s:
            gaps.setdefault(harm, []).append(gap_s)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.soak_standby", description=__doc__)
    parser.add_argument("--seconds", type=float, default=600.0, help="how long to run")
    parser.add_argument("--seed", type=int, help="the first seed; random if not given")
    arguments = parser.parse_args()
    first = secrets.randbits(40) if arguments.seed is None else arguments.seed
    print(f"first seed {first}; repeat with make soak-standby SOAK_SEED={first}", flush=True)
    pytest_configure()  # Spark as tests start it
    gaps: dict[str, list[float]] = {}
    rounds = 0
    began_s = time.monotonic()
    while time.monotonic() - began_s < arguments.seconds:
        try:
            run_round(first + rounds, gaps)
        except Exception:  # noqa: BLE001  (whatever it was, the seed is what matters)
            traceback.print_exc()
            print(f"FAILED at seed {first + rounds}", flush=True)
            return 1
        rounds += 1
        left = max(0.0, arguments.seconds - (time.monotonic() - began_s))
        done = ", ".join(
            f"{len(each)} x {harm} (median {statistics.median(each):.1f} s)"
            for harm, each in sorted(gaps.items())
        )
        print(f"{rounds} pairs: {done}; {left:.0f} s left", flush=True)
    print(f"{rounds} pairs, every result there once")
    return 0


if __name__ == "__main__":
    sys.exit(main())
