"""The keyed operator: code of a user's, over many keys at once, with one row of state for each.

`declared` reads what the class says of its state, `columns` and `elements` keep it in a table,
`due` the times of keys; `given` and `collections` are what the code sees; `batch` takes a batch in.
"""

from trailmark.operators.keyed.operator import Keyed

__all__ = ["Keyed"]
