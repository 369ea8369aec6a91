"""What processes do to a written stream that others write and read at the same time."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pyarrow as pa

from tests.support.processes import Pipe
from trailmark.errors import BatchGoesBackward, MissingSegment
from trailmark.log import LocalStorage
from trailmark.records import NO_BATCH
from trailmark.settings import Durability, LogSettings
from trailmark.streams import writer as writer_module
from trailmark.streams.description import open_stream
from trailmark.streams.retention import Retention
from trailmark.streams.times import Span
from trailmark.streams.view import open_view
from trailmark.streams.writer import StreamWriter

SCHEMA = pa.schema([("writer", pa.int32()), ("number", pa.int32())])
_SETTINGS = LogSettings(durability=Durability.UNSYNCED)
_ROWS = 3


def _rows(writer: int, number: int) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([{"writer": writer, "number": number}] * _ROWS, SCHEMA)


def write_batches(pipe: Pipe, path: Path, me: int, count: int, name: str, kept: int | None) -> None:
    """Commits batch after batch; of two with the same name only one commits each, and the one that
    lags behind is refused.

    Streams are tended all the time, so that trims and merges of several processes meet.
    """
    writer_module._TRIM_EVERY, writer_module._MERGE_EVERY, writer_module.UNMERGED = 2, 6, 2
    storage = LocalStorage(path, Durability.UNSYNCED)
    meta = open_stream(storage, SCHEMA)
    pipe.recv()  # all begin together
    places = []
    for number in range(count):
        writer = StreamWriter(storage, meta, _SETTINGS, Retention(batches=kept))
        try:
            places.append(writer.commit(writer.write([_rows(me, number)]), name, number))
        except BatchGoesBackward:
            places.append(NO_BATCH)
    pipe.send(places)


def follow(pipe: Pipe, path: Path) -> None:
    """Reads on until told to stop: what it read, batch by batch, and what was gone before."""
    view = open_view(LocalStorage(path))
    pipe.recv()
    read: dict[int, list[tuple[int, int]]] = {}
    gone: list[int] = []
    at = 0
    until = path / "stop"
    while True:
        is_last = os.path.exists(until)
        end = view.end()
        while at < end:
            try:
                (batch,) = view.batches(at, at + 1, Span())
                rows = [
                    (row["writer"], row["number"])
                    for chunk in batch.chunks
                    for part in view.read(chunk, SCHEMA.names, Span())
                    for row in part.to_pylist()
                ]
                read[at] = rows
            except MissingSegment:
                gone.append(at)
            at += 1
        if is_last:
            break
        time.sleep(0.0005)
    pipe.send((read, gone, at, view.oldest()))
