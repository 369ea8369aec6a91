"""Tries one input after another in a process that may die of it: see `tests.fuzz`.

Each input is in a file before it is tried. With atheris, inputs that reach new lines of Trailmark
are kept in the corpus and changed further; without it they are random.
"""

from __future__ import annotations

import argparse
import faulthandler
import random
import resource
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

#: Of processor time, far more than any input takes: tens of milliseconds.
_HANGS_AFTER_S = 10.0
#: Above what the process has when it begins. Who asks for more has believed a length that lies.
_MEMORY = 6 << 30
_LONGEST = 48


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("current", type=Path, help="where the input under way is written")
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--corpus", type=Path, help="with atheris: where inputs are kept")
    chosen = parser.parse_args()
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if chosen.corpus is not None:
        _guided(chosen.current, chosen.corpus, chosen.seconds, chosen.seed)
    else:
        _random(chosen.current, chosen.seconds, chosen.seed)


def _random(current: Path, seconds: float, seed: int) -> None:
    from tests.fuzz.targets import try_input

    attempt = _attempting(current, try_input)
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))
    rng = random.Random(seed)
    until = time.monotonic() + seconds
    tried = 0
    while time.monotonic() < until:
        attempt(rng.randbytes(rng.randrange(4, _LONGEST)))
        tried += 1
    print(f"tried {tried}", flush=True)


def _guided(current: Path, corpus: Path, seconds: float, seed: int) -> None:
    import atheris

    with atheris.instrument_imports(include=["trailmark"]):
        from tests.fuzz.targets import try_input

    options = {
        "max_total_time": int(seconds) or 1,
        "seed": seed or 1,
        "max_len": _LONGEST,
        "artifact_prefix": f"{current.parent}/",
        "rss_limit_mb": _MEMORY >> 20,
        "malloc_limit_mb": _MEMORY >> 20,
        "verbosity": 0,
        "print_final_stats": 1,
    }
    arguments = [f"-{name}={value}" for name, value in options.items()]
    atheris.Setup([sys.argv[0], *arguments, str(corpus)], _attempting(current, try_input))
    atheris.Fuzz()


def _attempting(current: Path, try_input: Callable[[bytes], None]) -> Callable[[bytes], None]:
    try_input(b"")  # whatever is made once is made before the clock runs

    def attempt(data: bytes) -> None:
        current.write_bytes(data)
        signal.setitimer(signal.ITIMER_PROF, _HANGS_AFTER_S)
        try_input(data)
        signal.setitimer(signal.ITIMER_PROF, 0.0)

    faulthandler.enable()
    faulthandler.register(signal.SIGPROF, chain=True)  # says where, then ends the process
    return attempt


if __name__ == "__main__":
    main()
