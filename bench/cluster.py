"""On a cluster of hosts with networks and memories of their own, on this machine: how often a
task finds the state of its bucket, how soon after a worker has been killed, and what a batch costs
beside one that does nothing but move its rows. With the settings of docs/clusters.md and without.

Prints one line per figure: name, value, limit, ok or short. Exit code 1 if any is short.
"""

from __future__ import annotations

import argparse
import json
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import pytest

from bench.cluster_child import BUCKETS, SMALL
from bench.figures import Figure, Report
from bench.spark import WORKLOADS
from tests.support.cluster import Cluster
from tests.support.network import LinkedHost, hosts_on_a_switch
from tests.support.spark_runs import all_processes, environment, kill_all, wait_until
from trailmark.engine.progress import read_progress
from trailmark.log import open_storage, read_meta

_PROJECT = Path(__file__).parents[1]
_CHILD = (sys.executable, "-m", "bench.cluster_child")
SET = {"spark.shuffle.reduceLocality.enabled": "false"}
_UNSET: Mapping[str, str] = {}
#: The batch in which a worker is killed, at the earliest.
_KILLED_AFTER = 60
_PATIENCE_S = 300.0


@dataclass(frozen=True)
class Place:
    """A cluster, and the host of a driver."""

    cluster: Cluster
    driver: LinkedHost
    home: Path

    @contextmanager
    def driver_of(
        self, settings: Mapping[str, str], task: str, word: str
    ) -> Iterator[subprocess.Popen[str]]:
        """A driver, which does one thing (see `bench.cluster_child`), and ends with this."""
        given = {
            "spark.master": self.cluster.url,
            "spark.executor.memory": "1g",
            **self.driver.driver_conf(),
            **settings,
        }
        (self.home / "settings.json").write_text(json.dumps(given))
        with subprocess.Popen(
            [*self.driver.start, *_CHILD, str(self.home), task, word],
            cwd=_PROJECT,
            env=environment(),
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        ) as driver:
            try:
                yield driver
            finally:
                kill_all([each for each in all_processes() if each.session == driver.pid])

    def run(self, settings: Mapping[str, str], task: str, word: str) -> str:
        """What it says until its end."""
        with self.driver_of(settings, task, word) as driver:
            return _said(driver)

    def cold(self, name: str) -> list[int]:
        """How many tasks of each batch had to recover."""
        storage = open_storage(self.home / name / "means")
        meta = read_meta(storage)
        assert meta is not None
        return [len(read_progress(storage, meta, n).recoveries) for n in range(SMALL.batches)]


def time_per_batch(report: Report, place: Place, rounds: int) -> None:
    times = json.loads(place.run(SET, "batch", str(rounds)).splitlines()[-1])
    ratio = median(a / b for a, b in zip(times["ours"], times["pass"], strict=True))
    report.add(Figure("time, ours / pass-through, 1,000,000 tuples", ratio, "x", 1.25))
    for name, each in times.items():
        report.add(Figure(f"  {name}, ms per batch", median(each), "ms"))


def warm_share(report: Report, place: Place) -> None:
    for name, settings, least in (("set", SET, 95.0), ("unset", _UNSET, None)):
        place.run(settings, "count", name)
        cold = place.cold(name)[1:]  # nothing is known before the first
        share = 100 * (1 - sum(cold) / (len(cold) * BUCKETS))
        what = f"tasks that find their state, {name}, {len(cold)} batches"
        report.add(Figure(what, share, "%", least, "at least"))


def after_a_kill(report: Report, place: Place) -> None:
    commits = place.home / "killed" / "checkpoint" / "commits"
    with place.driver_of(SET, "count", "killed") as driver:
        wait_until("it is warm", (commits / str(_KILLED_AFTER)).exists, _PATIENCE_S)
        place.cluster.kill(0)
        killed_in = max(int(each.name) for each in commits.iterdir() if each.name.isdigit()) + 1
        _said(driver)
    cold = [n for n, count in enumerate(place.cold("killed")) if count and n >= killed_in]
    report.add(Figure("batches until all are warm after a kill", _length(cold, killed_in), "", 3))


def _said(driver: subprocess.Popen[str]) -> str:
    said, _ = driver.communicate()
    assert driver.returncode == 0, "the driver failed"
    return said


def _length(cold: Sequence[int], begin: int) -> int:
    """Batches from one on to the last in which anything had to recover."""
    return max(cold) - begin + 1 if cold else 0


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.cluster", description=__doc__)
    parser.add_argument("--rounds", type=int, default=3, help="turns of each query")
    arguments = parser.parse_args()
    report = Report()
    # Hosts and processes are taken away at the end, also where somebody else ends it.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    try:
        with (
            hosts_on_a_switch(4) as (master, driver, *workers),
            tempfile.TemporaryDirectory(prefix="trailmark-bench-") as folder,
            Cluster(Path(folder, "cluster"), workers, master=master) as cluster,
        ):
            place = Place(cluster, driver, Path(folder))
            report.note(f"two workers of one core, {WORKLOADS[0].name}")
            time_per_batch(report, place, arguments.rounds)
            report.note(f"two workers of one core, {SMALL.batches} {SMALL.name}")
            SMALL.write(place.home / "orders", seed=1)
            warm_share(report, place)
            after_a_kill(report, place)
    except pytest.skip.Exception as error:
        print(error)
    return report.exit_code


if __name__ == "__main__":
    sys.exit(main())
