"""The barrier: the n-th tuples of all inputs come out together, as soon as the last of them is
there.

What is in flight, tuples that came and wait for those of other inputs, is the state: one piece,
because who leaves a queue follows from all the others. `state` keeps the queues in memory,
`pairing` finds what is complete, and `footprints` name the tuples in flight by their places in the
input log, or hold them where the log would be kept for few of them.
"""

from trailmark.operators.barrier.operator import Barrier

__all__ = ["Barrier"]
