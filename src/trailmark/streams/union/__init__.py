"""A union of streams: their rows in one order, which depends on their content alone.

It has no state of its own. Rows wait where they are, in the streams; what a batch releases follows
from a *decision* (`decision`): how far each stream was looked at, and up to which time rows are
released. `inputs` is one stream; `looking` asks all of them how far they are, side by side
(`asking`); `deciding` makes decisions, and `portions` says how much one releases; `decisions` keeps
them for others to read, `rows` reads what one releases.
"""
