"""Comparing what an interrupted run did with an uninterrupted one: exactly, and readably."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TypeAlias

import pyarrow as pa

from trailmark.errors import RecoveryDiffers
from trailmark.kernel.columns import contiguous
from trailmark.kernel.fingerprints import fingerprint
from trailmark.testing.crashes import Crashing
from trailmark.values import dataclass

Rows: TypeAlias = pa.Table | pa.RecordBatch

#: Rows of each side that are shown.
_SHOWN = 5

_AFTER_A_CRASH = """\
A process that recovers has the declared state, and nothing else. Look for
         - values that your code keeps elsewhere: in attributes, in variables that it
           closes over, in globals, in parts of a state that its checkpoint leaves out;
         - results that depend on what else is in a batch: a replay leaves out the
           tuples that are not needed."""
_WITHOUT_A_CRASH = """\
The same batches have to give the same, or no recovery can repeat them. Look for
         - random numbers: take their seed from the input;
         - the clock: use event times;
         - values that are read from outside."""


@dataclass(frozen=True, slots=True)
class Done:
    """What a batch has done: results, late rows and counts of each bucket, and the states that
    they held afterwards, as footprints; None where a bucket held none."""

    results: tuple[pa.RecordBatch, ...]
    late: tuple[pa.Table | None, ...]
    counts: tuple[tuple[int, int, int], ...]
    states: tuple[pa.RecordBatch | None, ...]


def compare_batches(batch: int, found: Done, expected: Done, crashes: Sequence[Crashing]) -> None:
    """Raises `RecoveryDiffers` if a batch has not done what it should have."""
    for bucket, (have, want) in enumerate(zip(found.results, expected.results, strict=True)):
        _compare(f"Results of batch {batch}{_of(bucket, found)}", have, want, crashes)
    for bucket, (have, want) in enumerate(zip(found.late, expected.late, strict=True)):
        if have is not None and want is not None:
            _compare(f"Late rows of batch {batch}{_of(bucket, found)}", have, want, crashes)
    if found.counts != expected.counts:
        raise _differs(
            f"Batch {batch} counts its late rows, late updates and missing times as "
            f"{found.counts}, and not as {expected.counts}",
            crashes,
        )
    compare_states(f"after batch {batch}", found.states, expected.states, crashes)


def compare_states(
    when: str,
    found: Sequence[pa.RecordBatch | None],
    expected: Sequence[pa.RecordBatch | None],
    crashes: Sequence[Crashing],
) -> None:
    """Raises `RecoveryDiffers` if a bucket has another state than it should have."""
    for bucket, (have, want) in enumerate(zip(found, expected, strict=True)):
        if have is not None and want is not None:
            name = f" of bucket {bucket}" if len(found) > 1 else ""
            _compare(f"The state{name} {when}", have, want, crashes)


def raised_after(error: Exception, batch: int, crashes: Sequence[Crashing]) -> RecoveryDiffers:
    """What is to be said of an error that a run without a crash does not raise."""
    return _differs(f"Batch {batch} raised {type(error).__name__}: {error}", crashes)


def _of(bucket: int, done: Done) -> str:
    return f" in bucket {bucket}" if len(done.results) > 1 else ""


def _compare(what: str, found: Rows, expected: Rows, crashes: Sequence[Crashing]) -> None:
    """Rows as a multiset, with their types: the order of results is nobody's."""
    are_same_types = found.schema.equals(expected.schema)
    if are_same_types and fingerprint(contiguous(found)) == fingerprint(contiguous(expected)):
        return
    have, want = _rows(found), _rows(expected)
    if have == want:
        if are_same_types:  # equal by all that can be seen: NaN is NaN
            return
        types = [", ".join(f"{f.name}: {f.type}" for f in e.schema) for e in (found, expected)]
        raise _differs(f"{what}: types are {types[0]}, and not {types[1]}.", crashes)
    which = "after the crash" if crashes else "in the second run"
    other = "without it" if crashes else "in the first"
    lines = [
        f"{what} {'is' if what.startswith('The') else 'are'} not the same "
        f"{'after a crash' if crashes else 'in two runs without a crash'}.",
        *_listed(f"only {other}", want - have),
        *_listed(f"only {which}", have - want),
    ]
    raise _differs("\n".join(lines), crashes)


def _rows(rows: Rows) -> Counter[str]:
    """Rows as they are shown: a float with all its digits, a decimal with its scale."""
    names = [name.lstrip("$") for name in rows.schema.names]
    columns = [column.to_pylist() for column in rows.columns]
    return Counter(
        ", ".join(f"{name}={value!r}" for name, value in zip(names, row, strict=True))
        for row in zip(*columns, strict=True)
    )


def _listed(title: str, rows: Counter[str]) -> list[str]:
    if not rows:
        return [f"  {title}: nothing"]
    shown = [f"    {row}" for row in sorted(rows.elements())[:_SHOWN]]
    more = rows.total() - len(shown)
    return [f"  {title}:", *shown, *([f"    ... and {more:,} more"] if more else [])]


def _differs(what: str, crashes: Sequence[Crashing]) -> RecoveryDiffers:
    return RecoveryDiffers(
        what,
        where="; ".join(map(str, crashes)) or "two runs without a crash",
        fix=_AFTER_A_CRASH if crashes else _WITHOUT_A_CRASH,
    )
