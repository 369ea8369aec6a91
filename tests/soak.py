"""Random crash cases of all operators, and meetings, for as long as asked.

``python -m tests.soak --seconds 600`` prints the first seed; every case has the next one, so that a
failure names the one to repeat.
"""

from __future__ import annotations

import argparse
import secrets
import sys
import time
import traceback

from tests.support.crashes import OTHER_KINDS, run_case_of, run_crash_case
from tests.support.meetings import run_random_meeting


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description=__doc__)
    parser.add_argument("--seconds", type=float, default=600.0, help="how long to run")
    parser.add_argument("--seed", type=int, help="the first seed; random if not given")
    arguments = parser.parse_args()
    first = secrets.randbits(40) if arguments.seed is None else arguments.seed
    print(f"first seed {first}; repeat with make soak SOAK_SEED={first}", flush=True)
    cases = crashes = 0
    started = shown = time.monotonic()
    while time.monotonic() - started < arguments.seconds:
        try:
            crashes += run_crash_case(first + cases)
            crashes += sum(run_case_of(kind, first + cases) for kind in OTHER_KINDS)
            run_random_meeting(first + cases)
        except Exception:  # noqa: BLE001  (whatever it was, the seed is what matters)
            traceback.print_exc()
            print(f"FAILED at seed {first + cases}", flush=True)
            return 1
        cases += 1
        if time.monotonic() - shown > 5:
            shown = time.monotonic()
            left = max(0.0, arguments.seconds - (shown - started))
            print(f"{cases:,} cases, {crashes:,} crashes, {left:.0f} s left", flush=True)
    print(f"{cases:,} cases, {crashes:,} crashes, all equal to the oracle")
    return 0


if __name__ == "__main__":
    sys.exit(main())
