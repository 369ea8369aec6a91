"""What a Trailmark does not know it does not touch: the look before files are moved or deleted.

Damaged files may go where nobody needs them. One that is whole and of a later format may hold what
its writer counts on, and what for is not known here.
"""

from __future__ import annotations

from collections.abc import Iterable

from trailmark.errors import DamagedSegment, OtherQuery
from trailmark.log.names import LogFile
from trailmark.log.reader import LogReader


def refuse_unknown(reader: LogReader, files: Iterable[LogFile]) -> None:
    """Raises `UnknownFormat` if one of the files holds a whole segment that cannot be read."""
    for file in files:
        try:
            if file.is_pack:
                reader.pack_index(file)
        except (DamagedSegment, OtherQuery, FileNotFoundError):
            continue  # what is in it cannot be told
        for batch in range(file.first, file.last + 1):
            try:
                reader.read_footer_from_file(file, batch)
            except (DamagedSegment, OtherQuery, FileNotFoundError):
                continue  # nothing that is unknown; or gone already
