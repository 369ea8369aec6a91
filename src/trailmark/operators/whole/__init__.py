"""The whole form of a user-defined operator: an object per bucket that takes batches in, and two
methods to get its state out and put it back.

`operator` is the operator itself, `state` keeps its checkpoint between batches, `checkpoint` is how
one is stored, `logged` what readers know of its logs without its code.
"""

from trailmark.operators.whole.operator import Whole

__all__ = ["Whole"]
