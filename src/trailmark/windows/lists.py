"""Lists of many windows at once, for functions of users' own."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from trailmark.errors import SchemaError
from trailmark.kernel.columns import single
from trailmark.windows.blocks import list_counts, lists_of


def extend_lists(
    lists: pa.ListArray, values: pa.Array, window: npt.NDArray[np.int64] | None = None
) -> pa.ListArray:
    """Lists with more values at their ends, in the order in which the values come.

    Parameters
    ----------
    lists
        A list for each window.
    values
        What is appended.
    window
        ``values[i]`` goes to the list of ``window[i]``. Without it, ``values`` has a list for each
        window.

    Examples
    --------
    >>> import numpy as np, pyarrow as pa
    >>> lists = pa.array([[1], [], [2, 3]])
    >>> extend_lists(lists, pa.array([7, 8, 9]), np.array([2, 0, 2])).to_pylist()
    [[1, 8], [], [2, 3, 7, 9]]
    >>> extend_lists(lists, lists).to_pylist()
    [[1, 1], [], [2, 3, 2, 3]]
    """
    if window is None:
        if len(values) != len(lists):
            raise SchemaError(
                f"{len(lists)} lists cannot be extended by {len(values)} lists.",
                where="extend_lists(lists, values)",
                fix="Give a list for each, or values and the window of each.",
            )
        window = np.repeat(np.arange(len(values)), list_counts(values))
        values = values.flatten()
    owners = np.concatenate([np.repeat(np.arange(len(lists)), list_counts(lists)), window])
    flat = pa.concat_arrays([lists.flatten(), single(values).cast(lists.type.value_type)])
    order = np.argsort(owners, kind="stable")
    return lists_of(np.bincount(owners, minlength=len(lists)), flat.take(pa.array(order)))
