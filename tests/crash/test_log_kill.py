"""Real processes on real files, killed with SIGKILL at some moment."""

from __future__ import annotations

import random
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.support.logs import append, open_log, rows_of
from trailmark.log import LocalStorage
from trailmark.records import FrameKind
from trailmark.settings import Durability, LogSettings

WRITER = """
import sys
from tests.support.logs import append, open_log
from trailmark.log import LocalStorage
from trailmark.records import START_OF_LOG
from trailmark.settings import Durability, LogSettings

storage = LocalStorage(sys.argv[1], Durability(sys.argv[2]))
log = open_log(storage, settings=LogSettings(merge_bytes=9000))
newest = log.newest()
link = log.read(newest).link if newest >= 0 else START_OF_LOG
batch = newest
while True:
    batch += 1
    link = append(log, batch, link).link
    print(batch, flush=True)
    if batch % 20 == 19:
        log.merge(batch - 3)
        log.trim(batch - 60)
"""


@pytest.mark.parametrize("durability", list(Durability))
def test_what_a_killed_writer_has_acknowledged_is_there(
    tmp_path: Path, durability: Durability
) -> None:
    rng = random.Random(durability.value)
    acknowledged = -1
    for _ in range(4):
        acknowledged = max(acknowledged, write_until_killed(tmp_path, durability, rng))
        log = open_log(LocalStorage(tmp_path), settings=LogSettings(merge_bytes=9000))
        assert log.newest() in (acknowledged, acknowledged + 1)
        assert log.verify().problems == []
        assert log.repair().problems == []
        assert not [path for path in (tmp_path / "in/00003").iterdir() if path.suffix == ".tmp"]
        for segment in log.read_from():
            assert segment.table(FrameKind.INPUT) == rows_of(segment.batch)
        acknowledged = log.newest()
    assert acknowledged > 20
    assert append(log, acknowledged + 1, log.read(acknowledged).link).created


def write_until_killed(root: Path, durability: Durability, rng: random.Random) -> int:
    """Returns the last batch that the writer said was in the log."""
    command = [sys.executable, "-c", WRITER, str(root), durability.value]
    repository = Path(__file__).parents[2]
    with subprocess.Popen(command, stdout=subprocess.PIPE, cwd=repository) as writer:
        assert writer.stdout is not None
        assert writer.stdout.readline()  # the first append is through: it is at work
        time.sleep(rng.uniform(0.02, 0.15))
        writer.kill()
        said = writer.stdout.read().split(b"\n")
    return int(said[-2]) if len(said) > 1 else -1
