"""Runs random cases against a kernel built with sanitizers: ``python -m tests.support.sanitized``.

The sanitized library stands in for the installed one, which stays as it is. The address sanitizer
has to be loaded before Python itself; :mod:`tests.property.test_kernel_sanitizers` sees to that.
"""

from __future__ import annotations

import argparse
import ctypes
import random
from typing import Any


def _stand_in(library: str) -> None:
    """From now on loading the kernel loads ``library``."""
    load: Any = ctypes.CDLL

    def load_other(name: Any, *arguments: Any, **more: Any) -> Any:
        is_kernel = str(name).endswith("libkernel.so")
        return load(library if is_kernel else name, *arguments, **more)

    vars(ctypes)["CDLL"] = load_other


def _nested(rng: random.Random) -> Any:
    """Rows of columns with columns in them, somewhere in the middle of others."""
    import pyarrow as pa

    words = [None if rng.random() < 0.2 else "x" * rng.randrange(20) for _ in range(50)]
    lists = [None if rng.random() < 0.2 else words[: rng.randrange(5)] for _ in words]
    structs = [{"lists": each, "map": [("k", 1)] * rng.randrange(3)} for each in lists]
    kind = pa.struct([("lists", pa.list_(pa.string())), ("map", pa.map_(pa.string(), pa.int16()))])
    columns = [pa.array(lists, pa.large_list(pa.string())), pa.array(structs, kind)]
    first = rng.randrange(50)
    return pa.RecordBatch.from_arrays(columns, ["a", "b"]).slice(first, rng.randrange(51 - first))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("library", help="the kernel, built with sanitizers")
    parser.add_argument("--first", type=int, default=0, help="first seed")
    parser.add_argument("--count", type=int, default=200, help="number of seeds")
    chosen = parser.parse_args()
    _stand_in(chosen.library)

    from tests.support.checks import check_against_oracle, check_fork, check_restricted_replay
    from tests.support.joining import random_join
    from tests.support.joining_checks import check_against_oracle as check_join
    from tests.support.joining_checks import check_rebuilt
    from tests.support.strategies import random_case
    from tests.support.tables import ExactMemory, cramped
    from trailmark.kernel.fingerprints import fingerprint
    from trailmark.kernel.library import kernel

    assert kernel._name == chosen.library
    for seed in range(chosen.first, chosen.first + chosen.count):
        print(f"seed {seed}", flush=True)
        rng = random.Random(seed)
        case = random_case(rng, may_overflow=True)
        with cramped():
            for batch in case.batches:
                fingerprint(batch)
            fingerprint(_nested(rng))
            check_against_oracle(case, ExactMemory)
            check_restricted_replay(random_case(rng), rng, ExactMemory)
            check_fork(random_case(rng), rng, origin_follows=seed % 2 == 0)
            if seed % 5 == 0:
                check_join(random_join(rng), ExactMemory)
                check_rebuilt(random_join(rng), rng, ExactMemory)
    print("done", flush=True)


if __name__ == "__main__":
    main()
