"""Continuous eventual checkpointing: which footprints are written, when, and what they are worth.

`policy` holds the policies. Each begins a `chooser` in a bucket, which picks windows at the end of
every batch and remembers what it needs for that (`noted`). Of the state it sees the `pieces`, of
the past the `ledger` and the `account`, which know at every moment what a recovery would cost.
Writing the footprints is left to :mod:`trailmark.engine`, reading them to
:mod:`trailmark.recovery`.
"""
