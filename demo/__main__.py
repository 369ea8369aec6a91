"""Runs a query, kills it with `kill -9`, starts it again, and checks that nothing was lost.

Averages the price of every ten orders of an item, with Trailmark on embedded Spark. The query is
killed in the middle of a batch, together with its JVM and its workers, and its cached state is
deleted, as if the machine were gone. Started again, it recovers from its log. Its results are then
compared, bit by bit, with those of the same query uninterrupted and with averages computed by hand.

The exit code is 0 if all results are equal, and 1 if they are not or anything else went wrong.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from demo.failure import DemoFailure
from demo.places import RECOVER_WITHIN, directory

_PICTURE = Path(__file__).parent / "out" / "throughput.png"
#: With fewer there is no middle to be killed in.
_FEWEST_FILES = 4


def main(arguments: Sequence[str] | None = None) -> int:
    """The exit code."""
    options = _parse(arguments)
    try:
        is_equal = _demonstrate(options)
    except KeyboardInterrupt:
        print("\nInterrupted; everything that was started is stopped.")
        return 130
    except DemoFailure as failure:
        print(f"\n{failure}")
        return 1
    return 0 if is_equal else 1


def _demonstrate(options: argparse.Namespace) -> bool:
    # Imported late, because it takes a while, and whoever presses Ctrl-C meanwhile is answered.
    from demo.orders import Workload
    from demo.story import demonstrate

    workload = Workload(options.files, options.orders_per_file, options.items)
    with (
        directory("trailmark-demo-", keep=options.keep) as root,
        directory(f"trailmark-demo-cache-{os.getpid()}-", within=_shared_memory()) as cache,
    ):
        return demonstrate(workload, root, cache, options.recover_within, options.picture)


def _shared_memory() -> str | None:
    return "/dev/shm" if os.access("/dev/shm", os.W_OK) else None


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m demo",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    numbers = [
        ("--files", 20, _FEWEST_FILES, "files of orders, each of which is a batch"),
        ("--orders-per-file", 500_000, 1, "orders in each of them"),
        ("--items", 100_000, 1, "different items that are ordered"),
    ]
    for option, default, least, text in numbers:
        text = f"{text} (default {default:,})"
        parser.add_argument(option, type=_at_least(least), default=default, metavar="N", help=text)
    text = f"how long a recovery may take (default {RECOVER_WITHIN!r})"
    parser.add_argument("--recover-within", default=RECOVER_WITHIN, metavar="TIME", help=text)
    text = f"where the picture goes (default {os.path.relpath(_PICTURE)})"
    parser.add_argument("--picture", type=Path, default=_PICTURE, metavar="FILE", help=text)
    parser.add_argument("--keep", action="store_true", help="keep the working directory")
    return parser.parse_args(arguments)


def _at_least(least: int) -> Callable[[str], int]:
    def number(given: str) -> int:
        if not given.isdecimal() or int(given) < least:
            raise argparse.ArgumentTypeError(f"{given!r} is not a number from {least} up")
        return int(given)

    return number


def _interrupt(*_: Any) -> None:
    raise KeyboardInterrupt


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, _interrupt)
    sys.exit(main())
