"""Spares: files that nobody needs any more, kept to be written over.

Blocks that a file has already need not be found, and not be freed: to write over an old file of
the same size takes half to two thirds of the time of writing a new one and deleting the old one. A
directory has a few numbered places for spares; which one a file goes to, and which one the next
file looks in, follows from the number in its name, so that processes need not tell each other.
"""

from __future__ import annotations

import re

#: Places for spares in a directory.
SPARES = 16

_NUMBERED = re.compile(r"([0-9]+)\.seg", re.ASCII)
_SPARE = re.compile(r"spare-[0-9]{2}", re.ASCII)


def spare_name(name: str) -> str | None:
    """The place that files of this name share; None if they have none.

    >>> spare_name("00000000000000000035.seg")
    'spare-03'
    """
    found = _NUMBERED.fullmatch(name)
    return None if found is None else f"spare-{int(found[1]) % SPARES:02d}"


def is_spare(name: str) -> bool:
    """Whether a file of this name waits to be written over."""
    return _SPARE.fullmatch(name) is not None
