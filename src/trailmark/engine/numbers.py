"""Numbers of results: how many a bucket has given, and which.

Only operators that take their input slice by slice number their results: with others the order of
results depends on how the input was cut into batches. Beside their count goes a digest that each
result is absorbed into with its number. Where two replicas have given equally many, it tells
whether they were the same.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from trailmark.kernel.columns import arrow_fixed
from trailmark.kernel.fingerprints import fingerprint, joined
from trailmark.log import Footer, Origin
from trailmark.log.json_text import whole
from trailmark.records import Fingerprint, FrameKind

#: Attribute of output footers: the results given so far, with those of the batch.
RESULTS_GIVEN = "results_given"
NOTHING_GIVEN = Fingerprint(0, 0)
_MOST = 2**62


def given_after(before: Fingerprint, results: pa.RecordBatch) -> Fingerprint:
    """What a bucket has given when these are its next results."""
    return joined([before, _numbered(before.rows, results)])


def given_before(after: Fingerprint, results: pa.RecordBatch) -> Fingerprint:
    """What a bucket had given before its last results."""
    first = after.rows - results.num_rows
    last = _numbered(first, results)
    return joined([Fingerprint(first, after.digest), Fingerprint(0, -last.digest)])


def results_given(footer: Footer, origin: Origin) -> Fingerprint | None:
    """What a bucket has given up to the end of a batch; None where results have no numbers."""
    stored = footer.attributes.get(RESULTS_GIVEN)
    if stored is None:
        return None
    try:
        rows, digest = stored
        least = footer.rows.get(FrameKind.RESULTS, 0)
        return Fingerprint(whole(rows, least, _MOST), whole(digest, 0, 2**64 - 1))
    except (TypeError, ValueError) as error:
        raise origin.mismatch(0, f"{RESULTS_GIVEN!r} is no count and digest ({error})") from error


def _numbered(first: int, results: pa.RecordBatch) -> Fingerprint:
    """The digest of results, each with its number."""
    numbers = np.arange(first, first + results.num_rows, dtype=np.int64)
    columns = [arrow_fixed(numbers, pa.int64()), *results.columns]
    return fingerprint(pa.RecordBatch.from_arrays(columns, names=["", *results.schema.names]))
