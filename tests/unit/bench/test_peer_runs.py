"""Watching a job and killing it, with processes of our own in place of engines."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from bench.peers.orders import Orders, Workload, prepare
from bench.peers.peer import Peer
from bench.peers.rates import rows_per_s
from bench.peers.run import (
    Event,
    Files,
    Ground,
    JobFailed,
    Running,
    kill_session,
    processes,
    read_events,
    resident_bytes,
)

_HELD_BYTES = 40 * 2**20
#: Says something, then starts a child in another process group that holds memory, and waits.
_FAMILY = f"""
import os, subprocess, sys, time
child = "import os, time; os.setpgid(0, 0); held = bytearray(os.urandom({_HELD_BYTES})); "
child += "print('up', flush=True); time.sleep(600)"
kid = subprocess.Popen([sys.executable, "-c", child], stdout=subprocess.PIPE)
kid.stdout.readline()
print("up", flush=True)
time.sleep(600)
"""


def test_events_are_told_from_what_an_engine_prints() -> None:
    lines = [
        "WARNING: something\n",
        '{"event": "ready", "at": 5.0}\n',
        '{"progress": 1}\n',
        '{"event": "progress", "at": 6.5, "rows": 10, "results": 1, "more": "x"}\n',
        '{"event": "progress", "at": 7.0, "batch_rows": 10, "batch_s": 2}\n',
    ]

    assert list(read_events(lines)) == [
        Event("ready", 5.0),
        Event("progress", 6.5, rows=10, results=1),
        Event("progress", 7.0, batch_rows=10, batch_s=2),
    ]


def test_memory_and_the_kill_reach_children_in_other_process_groups() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", _FAMILY], stdout=subprocess.PIPE, start_new_session=True
    ) as leader:
        assert leader.stdout is not None
        assert leader.stdout.readline() == b"up\n"
        family = processes(leader.pid)
        alone, all_of_them = resident_bytes(leader.pid), sum(map(resident_bytes, family))
        kill_session(leader.pid)

    assert len(family) == 2
    assert all_of_them >= alone + _HELD_BYTES
    assert all(resident_bytes(process) == 0 for process in family)


def test_files_that_were_removed_still_count(tmp_path: Path) -> None:
    files = Files(tmp_path)
    (tmp_path / "scratch").mkdir()
    (tmp_path / "scratch" / "local").write_bytes(b"x" * 100)
    (tmp_path / "log").mkdir()
    (tmp_path / "log" / "a").write_bytes(b"x" * 10)
    files.look()
    (tmp_path / "log" / "a").unlink()
    (tmp_path / "log" / "b").write_bytes(b"x" * 5)
    files.look()

    assert (files.files, files.bytes) == (2, 15)


def test_a_rate_from_batches_leaves_out_the_first_ones() -> None:
    events = [
        Event("progress", at, rows=100 * n, batch_rows=100, batch_s=took)
        for n, (at, took) in enumerate([(9.0, 9.0), (10.0, 1.0), (12.0, 2.0)], 1)
    ]

    assert rows_per_s([Event("ready", 0.0), *events], rows=300, warm_up=2) == 50


def test_a_rate_without_batches_leaves_out_the_start_and_the_wait_at_the_end() -> None:
    told = [(10.0, 0), (11.0, 100), (12.0, 300), (13.0, 500), (20.0, 600)]
    events = [Event("ready", 1.0), *(Event("progress", at, rows=n) for at, n in told)]

    assert rows_per_s([*events, Event("done", 21.0, rows=600)], rows=600, warm_up=2) == 200


def test_a_rate_is_known_even_if_a_job_told_only_its_end() -> None:
    assert rows_per_s([Event("ready", 1.0), Event("done", 5.0, rows=80)], rows=80, warm_up=2) == 20


@pytest.fixture
def here(tmp_path: Path) -> Ground:
    here = Ground(tmp_path / "ground", tmp_path / "cache")
    here.begin()
    return here


@pytest.fixture
def orders(tmp_path: Path) -> Orders:
    return prepare(Workload(items=5, window=2, rows=10, batches=2), tmp_path / "orders")


def _job(tmp_path: Path, text: str) -> Peer:
    script = tmp_path / "job.py"
    script.write_text("import json, sys, time\nasked = json.loads(sys.argv[1])\n" + text)
    return Peer("fake", "Fake", "none", str(script), "plain")


def test_a_crash_is_put_back_as_it_was(tmp_path: Path, here: Ground, orders: Orders) -> None:
    peer = _job(
        tmp_path,
        "open(asked['place'] + '/state', 'a').write('x')\n"
        "print(json.dumps({'event': 'progress', 'at': 1.0, 'rows': 10}), flush=True)\n"
        "time.sleep(600)\n",
    )
    image = tmp_path / "image"
    with Running(peer, Path(sys.executable), orders.asked(), here) as job:
        job.wait_for(lambda event: event.rows == 10, 60)
        job.kill()
        assert job.newest.rows == 10
    (here.cache / "table").write_text("cached")
    here.keep_image(image)

    for with_cache in (False, True):
        here.put_back(image, with_cache=with_cache)
        assert (here.place / "state").read_text() == "x"
        assert (here.cache / "table").exists() == with_cache
        (here.place / "state").write_text("changed")


def test_a_job_that_ends_too_early_fails_with_its_last_words(
    tmp_path: Path, here: Ground, orders: Orders
) -> None:
    peer = _job(tmp_path, "sys.exit('no such engine')\n")

    with (
        Running(peer, Path(sys.executable), orders.asked(), here) as job,
        pytest.raises(JobFailed, match=r"Fake: the job ended before that.*no such engine"),
    ):
        job.wait_for(lambda event: event.event == "done", 60)
