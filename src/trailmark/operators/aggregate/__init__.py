"""The windowed aggregate: group by keys, cut into windows, fold functions over each.

`operator` is the operator itself, `assign` finds the windows of a batch's tuples, `met_windows`
holds their states side by side meanwhile, `footprints` turns windows into rows of the output log
and back, `logged` is what readers know of its logs without it.
"""

from trailmark.operators.aggregate.operator import Aggregate

__all__ = ["Aggregate"]
