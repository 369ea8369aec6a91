"""Continuous eventual checkpointing: which footprints are written, when, and what they are worth.

`policy` holds the policies, `choose` picks windows at the end of a batch, `budget` bounds the time
that takes, `ledger` and `account` know at every moment what a recovery would cost. Writing the
footprints is left to :mod:`trailmark.engine`, reading them to :mod:`trailmark.recovery`.
"""
