"""Prints what the model of growth says: of requests, which follow from the number of buckets alone,
and of times, which follow from what is measured for it.

python -m bench.scaling                                     the tables of docs/scaling.md
python -m bench.scaling --measure                           measures, and prints the tables of times
python -m bench.scaling --buckets 8 64 --interval 60        a batch a minute
python -m bench.scaling --put 0.0054 --get 0.00043          other prices of a thousand requests
python -m bench.scaling --write                             puts its tables into docs/scaling.md
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from bench.experiment import Effort, Raw, run
from bench.scaling.tables import BUCKETS, INTERVAL_S, PAGE, SLOTS, Prices, put_into, request_tables

#: Where everything is kept that was measured.
_RAW = Path(".bench")


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m bench.scaling",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    prices = Prices()
    parser.add_argument("--buckets", type=int, nargs="+", default=BUCKETS)
    parser.add_argument("--interval", type=float, default=INTERVAL_S, help="seconds of a batch")
    parser.add_argument("--slots", type=int, default=SLOTS, help="cores that the query has")
    parser.add_argument("--put", type=float, default=prices.put, help="of 1,000 PUT or LIST")
    parser.add_argument("--get", type=float, default=prices.get, help="of 1,000 GET or HEAD")
    parser.add_argument("--measure", action="store_true", help="measure, and print times")
    parser.add_argument("--write", action="store_true", help=f"make {PAGE} again")
    asked = parser.parse_args(arguments)
    if asked.write:
        PAGE.write_text(put_into(PAGE.read_text(), request_tables()))
        print(PAGE)
        return 0
    if asked.measure:
        print(_times())
        return 0
    given = Prices(asked.put, asked.get)
    print(request_tables(asked.buckets, asked.interval, given, asked.slots))
    return 0


def _times() -> str:
    from bench.scaling import measured  # starts Spark

    def note(text: str) -> None:
        print(f"... {text}", file=sys.stderr, flush=True)

    raw = Raw(**json.loads(run(measured, Effort(is_quick=True), note, _RAW).read_text()))
    left_out = [f"Not measured: {what}. {why}" for what, why in raw.skipped.items()]
    return "\n\n".join([measured.show(raw).text, *left_out])


if __name__ == "__main__":
    raise SystemExit(main())
