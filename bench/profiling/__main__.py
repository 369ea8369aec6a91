"""Prints where the time of a batch goes, from the raw file that `make profile` has left."""

from __future__ import annotations

import sys

from bench.experiment import load
from bench.experiments import profile
from bench.profiling.tables import profile_table


def main() -> int:
    raw = load(profile.NAME)
    if raw is None:
        print("Nothing was measured yet: run `make profile`.", file=sys.stderr)
        return 1
    print(profile_table(raw))
    return 0


if __name__ == "__main__":
    sys.exit(main())
