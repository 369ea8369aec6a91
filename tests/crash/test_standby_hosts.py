"""Two drivers with `tm.standby`, each with memory of its own, as on two hosts: who takes over has
followed the logs, and need not recover."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

from tests.support.network import own_memory
from tests.support.standbys import Pair
from trailmark.drawing.leases import draw_lease
from trailmark.drawing.text import lines_of
from trailmark.inspection.logs import OperatorFiles
from trailmark.leases import open_lease
from trailmark.leases.status import LeaseStatusReader
from trailmark.log import open_storage
from trailmark.records import Stream

_ALL_THERE = "2 of 2 buckets at most 0 batches behind"


def _before_whom_it_recovered(path: str) -> list[tuple[int, int]]:
    """Buckets, and the batches before which they recovered."""
    files = OperatorFiles(open_storage(path))
    return [
        (bucket, batch)
        for bucket in files.buckets
        for batch in files.log(Stream.OUTPUT, bucket).batches()
        if "recovery" in files.log(Stream.OUTPUT, bucket).read_footer(batch)[0].attributes
    ]


def test_a_standby_on_another_host_has_the_tables_ready(tmp_path: Path) -> None:
    with ExitStack() as until_the_end:
        host = own_memory()
        pair = Pair(tmp_path, 1, until_the_end)
        pair.query = replace(pair.query, cache="", trap="")
        pair.feed()
        pair.start(host)
        pair.wait_for_active()
        pair.start(host)
        pair.wait_for_waiting("warm: rehearsal")
        pair.feed()
        pair.wait_for_all()
        pair.wait_for_waiting(_ALL_THERE)
        path, storage = open_lease(pair.lease)
        lines = lines_of(draw_lease(LeaseStatusReader(storage).read(), path))
        assert any(_ALL_THERE in line for line in lines), lines
        pair.kill_at_rest()
        pair.finish()
        assert _before_whom_it_recovered(pair.query.path) == []
