"""Sessions: windows that grow and merge, as an operator with one piece for each key.

What a key has open is one piece, however many sessions that are: when two of them merge, no piece
ends. It is a keyed operator whose code is ours. `cut` says which tuples and sessions make up one,
`carried` brings the states of sessions that go on or merge together, `code` is what is called with
every batch, `operator` the operator itself, and `logged` what readers know of its logs.
"""

from trailmark.operators.sessions.operator import Sessions, windowed

__all__ = ["Sessions", "windowed"]
