"""Where the named readers of the logs stand."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from trailmark.errors import DamagedSegment, UnknownFormat
from trailmark.log import Storage
from trailmark.log.readers import read_reader, reader_names
from trailmark.records import Stream
from trailmark.values import dataclass


@dataclass(frozen=True, slots=True)
class ReaderStatus:
    """A named reader. All but its name is None if its file cannot be read; ``problem`` says why.

    Attributes
    ----------
    stream
        Which log it reads.
    needs
        The first batch it has not committed yet; it keeps this one and all later ones.
    seen_us
        When it last said so.
    lag
        Committed batches that it has not read, or not committed, yet.
    lag_rows
        Rows of these; None where that is not known without reading more than a footer.
    follows
        Of a reader of replicas, whether it follows this one now.
    problem, fix
        What is wrong with its file, and what to do about it.
    """

    name: str
    stream: str | None = None
    needs: int | None = None
    seen_us: int | None = None
    lag: int | None = None
    lag_rows: int | None = None
    follows: bool | None = None
    problem: str = ""
    fix: str = ""

    def describe(self) -> dict[str, Any]:
        """All of it as JSON."""
        return asdict(self)


def read_readers(storage: Storage, ends: Mapping[Stream, int]) -> tuple[ReaderStatus, ...]:
    """All named readers, by name.

    Parameters
    ----------
    storage
        Where the logs are.
    ends
        Of each log, the batch after the last committed one.
    """
    found = [_read(storage, name, ends) for name in reader_names(storage)]
    return tuple(reader for reader in found if reader is not None)


def _read(storage: Storage, name: str, ends: Mapping[Stream, int]) -> ReaderStatus | None:
    try:
        reader = read_reader(storage, name)
    except (DamagedSegment, UnknownFormat) as error:
        return ReaderStatus(name, problem=error.what, fix=error.fix)
    if reader is None:
        return None
    end = ends.get(reader.stream)
    lag = None if end is None else max(0, end - reader.needs)
    return ReaderStatus(
        name,
        reader.stream.name.lower(),
        reader.needs,
        reader.seen_us,
        lag,
        follows=reader.follows,
    )
