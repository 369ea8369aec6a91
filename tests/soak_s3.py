"""Random faults of an object store for as long as asked: ``python -m tests.soak_s3 --seconds 600``.

The first seed is printed; every case has the next one, so that a failure names the one to repeat.
Who comes first where two write at once is for the machine to decide, so that a case may have to be
repeated several times.
"""

from __future__ import annotations

import argparse
import secrets
import sys
import time
import traceback

import pytest

from tests.support.object_store import s3_server, use_s3
from tests.support.s3_cases import LIVES, run_s3_case
from tests.support.s3_proxy import Proxy, proxy_before


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.soak_s3", description=__doc__)
    parser.add_argument("--seconds", type=float, default=600.0, help="how long to run")
    parser.add_argument("--seed", type=int, help="the first seed; random if not given")
    arguments = parser.parse_args()
    first = secrets.randbits(40) if arguments.seed is None else arguments.seed
    print(f"first seed {first}; repeat with make soak-s3 SOAK_SEED={first}", flush=True)
    with (
        pytest.MonkeyPatch.context() as environment,
        s3_server() as endpoint,
        proxy_before(endpoint) as proxy,
    ):
        use_s3(proxy.endpoint, environment)
        return _run_for(arguments.seconds, proxy, first)


def _run_for(seconds: float, proxy: Proxy, first: int) -> int:
    kinds = list(LIVES)
    cases = faults = 0
    started = shown = time.monotonic()
    while time.monotonic() - started < seconds:
        seed = first + cases
        try:
            faults += run_s3_case(proxy, kinds[seed % len(kinds)], seed)
        except Exception:  # noqa: BLE001  (whatever it was, the seed is what matters)
            traceback.print_exc()
            print(f"FAILED at seed {seed}", flush=True)
            return 1
        cases += 1
        if time.monotonic() - shown > 5:
            shown = time.monotonic()
            left = max(0.0, seconds - (shown - started))
            print(f"{cases:,} cases, {faults:,} faults, {left:.0f} s left", flush=True)
    print(f"{cases:,} cases, {faults:,} faults, nothing lost and nothing twice")
    return 0


if __name__ == "__main__":
    sys.exit(main())
