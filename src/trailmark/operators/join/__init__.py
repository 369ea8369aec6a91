"""The windowed join: pairs of tuples of two sides with equal keys, whose times lie close together.

Whether a tuple still waits for partners follows from its time and the watermark, and whether two
tuples match from these two alone. So the state of an inner join is the tail of the input log; outer
joins add a bit for each tuple, which tells whether it has matched. `state` keeps both sides in
memory (`waiting` their times and keys, `row_blocks` their columns), cut into pieces that
`footprints` are written of and that `loading` brings back. In a `batch`, `arrivals` are what comes,
`matching` finds its pairs, `departures` are what leaves and `nearest` what it is paired with then;
`columns` are those of the results.

Instead of by their times, tuples may wait for as long as they are among the last of their side, or
of their key. Then numbers stand for times, or who follows decides.
"""

from trailmark.operators.join.operator import Join

__all__ = ["Join"]
