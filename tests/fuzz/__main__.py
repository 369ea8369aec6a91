"""Fuzzes all that reads the files of a log or a cache: ``python -m tests.fuzz --seconds 3600``.

Files are changed and sealed again with right checksums, so that what is in them has to be judged.
Whoever reads them gives an answer or an error of Trailmark's own; it does not die, hang, run out of
memory, or raise anything else, and where verification finds nothing, nobody is refused. Tokens of
the cache are changed, too: there nobody is refused at all, and results are what they were.

Inputs are tried in a process of their own, so that one that kills it is found as well. What was
found is kept, one file each, and ``python -m tests.fuzz FILE`` tries it again.
"""

from __future__ import annotations

import argparse
import importlib.util
import random
import sys
from pathlib import Path

from tests.fuzz.hunt import Finding, Hunt
from tests.fuzz.targets import try_input


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("again", nargs="*", type=Path, help="inputs to try again")
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--seed", type=int, help="of the inputs; random if not given")
    parser.add_argument("--place", type=Path, default=Path(".fuzz"), help="corpus and findings")
    parser.add_argument("--most", type=int, default=20, help="findings after which it ends")
    chosen = parser.parse_args()
    for path in chosen.again:
        try_input(path.read_bytes())
    if chosen.again:
        return 0
    seed = random.randrange(1, 2**31) if chosen.seed is None else chosen.seed
    is_guided = importlib.util.find_spec("atheris") is not None
    print(f"seed {seed}, in {chosen.place}/: " + _how(is_guided), flush=True)
    hunt = Hunt(chosen.place, seed, is_guided)
    findings = hunt.run(chosen.seconds, chosen.most, on_finding=_show)
    print(f"{len(findings)} findings in {chosen.seconds:.0f} s", flush=True)
    return 1 if findings else 0


def _how(is_guided: bool) -> str:
    if is_guided:
        return "atheris, guided by the lines that inputs reach"
    return "random inputs, for atheris is not installed (pip install atheris)"


def _show(finding: Finding) -> None:
    print(f"{finding.after_s:7.1f} s  {finding.what}\n           {finding.path}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
