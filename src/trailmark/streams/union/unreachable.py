"""Which streams a union cannot reach, in a file of its own, for those who look."""

from __future__ import annotations

from collections.abc import Mapping

from trailmark.log import Storage
from trailmark.log.json_text import dump_guarded, load_guarded, object_of, read_text, text_of, whole
from trailmark.streams.asking import Unreached
from trailmark.streams.times import EARLIEST, LATEST

_PATH = "unreachable.json"


def keep_unreachable(storage: Storage, streams: Mapping[str, Unreached]) -> None:
    """Writes down which streams cannot be reached now."""
    body = {name: [each.since_us, each.why] for name, each in streams.items()}
    storage.replace(_PATH, [dump_guarded({"streams": body}, "unreachable")])


def read_unreachable(storage: Storage) -> dict[str, Unreached]:
    """The streams that whoever runs the union could not reach when it looked last."""
    try:
        body = load_guarded(read_text(storage, _PATH))
        if body is None:
            return {}
        streams = object_of(body["streams"])
        return {
            name: Unreached(whole(since, EARLIEST, LATEST), text_of(why))
            for name, (since, why) in streams.items()
        }
    except FileNotFoundError:
        return {}
    except (KeyError, TypeError, ValueError):
        return {}  # nobody goes by it, and the next change writes it anew
