"""What the active process works on: for those that wait, who may have its tables ready.

Nobody goes by it. Who was active and wakes may write it once more; then the wrong tables are ready.
"""

from __future__ import annotations

from collections.abc import Sequence

from trailmark.log import Storage
from trailmark.log.json_text import dump_guarded, load_guarded, read_text, text_of
from trailmark.values import dataclass

WORK = "work"
_PATH = f"{WORK}/operators.json"


@dataclass(frozen=True, slots=True)
class Work:
    """An operator of the active process.

    Parameters
    ----------
    path
        Where its logs are.
    cache_dir
        Where it was told to keep its tables, on whatever host; None if it was not.
    place
        Names the memory that they are in, on the host of the active process.
    """

    path: str
    cache_dir: str | None
    place: str


def say_work(storage: Storage, works: Sequence[Work]) -> None:
    """Writes it down."""
    operators = [[work.path, work.cache_dir, work.place] for work in works]
    storage.replace(_PATH, [dump_guarded({"operators": operators}, WORK)])


def read_work(storage: Storage) -> list[Work]:
    """What was written; nothing if that is nothing of the kind."""
    try:
        body = load_guarded(read_text(storage, _PATH))
        found = [] if body is None else body["operators"]
        return [
            Work(text_of(path), None if where is None else text_of(where), text_of(place))
            for path, where, place in found
        ]
    except (FileNotFoundError, KeyError, TypeError, ValueError):
        return []
