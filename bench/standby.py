"""How long nobody answers: from ``kill -9`` of everything that is active to the first new batch
that Spark has committed, with a warm standby (`tm.standby`) and with a restart in the same run.
With ``--apart``: what a standby computes that follows the logs, since it has memory of its own as
on another host, at 100,000 tuples a second, and how long nobody answers then.

Prints one line per figure: name, value, limit, ok or short. Exit code 1 if any is short.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from statistics import median, quantiles

import numpy as np
import pyarrow as pa

import trailmark as tm
from bench.figures import Figure, Report
from trailmark.leases import newest_term, open_lease
from trailmark.leases.waiting import all_waiting

_PROJECT = Path(__file__).parents[1]
_SCHEMA = pa.schema([("item_id", pa.int32()), ("price", pa.float64())])
#: Orders of a batch that comes, and how often one comes.
_ROWS, _EVERY_S = 1_000, 0.1
#: Orders per second while costs are measured, for as long as from one rehearsal to the next, so
#: often in turns.
_RATE, _COSTS_S, _TURNS = 100_000, 45.0, 4
_PATIENCE_S = 300.0
#: So many runs say something about the slowest of a hundred.
_MANY = 100
#: Gives a process memory of its own for tables; it needs the rights of root.
_APART = ("unshare", "--mount", "env", "TMPDIR=/dev/shm", "sh", "-c")
_OWN_MEMORY = ('mount -t tmpfs tmpfs /dev/shm && exec "$@"', "sh")
_FOLLOWS = "buckets at most"


class Shop:
    """A stream of orders that goes on by itself, and drivers that count them.

    Every item has one order before anything is measured, so that its window is open.
    """

    def __init__(
        self, home: Path, windows: int, until_the_end: ExitStack, *, is_apart: bool = False
    ) -> None:
        self.home = home
        self._wrapper = (*_APART, *_OWN_MEMORY) if is_apart else ()
        self._windows = windows
        self._until_the_end = until_the_end
        self._begun = 0
        self.running: dict[str, subprocess.Popen[bytes]] = {}
        self._writer = tm.stream_writer(home / "orders", _SCHEMA, name="shop")
        self._append(np.arange(windows, dtype=np.int32))

    def _append(self, items: np.ndarray) -> None:
        prices = items.astype(np.float64)
        self._writer.append(pa.table({"item_id": items, "price": prices}, schema=_SCHEMA))

    @contextmanager
    def orders_come(self, rows: int = _ROWS) -> Iterator[None]:
        """Orders come while this lasts, so many every tenth of a second."""
        ends = threading.Event()
        rng = np.random.default_rng(1)

        def go_on() -> None:
            while not ends.wait(_EVERY_S):
                self._append(rng.integers(0, self._windows, rows, dtype=np.int32))

        thread = threading.Thread(target=go_on)
        thread.start()
        try:
            yield
        finally:
            ends.set()
            thread.join()

    def start(self, mode: str) -> str:
        """Starts one more driver; returns its name."""
        name = f"driver-{self._begun}"
        self._begun += 1
        process = subprocess.Popen(
            [
                *self._wrapper,
                sys.executable,
                "-m",
                "bench.standby_child",
                str(self.home),
                name,
                mode,
            ],
            cwd=_PROJECT,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        self.running[name] = process
        self._until_the_end.callback(_kill, process)
        return name

    def kill(self, name: str) -> None:
        """kill -9 of a driver, its JVM and its workers."""
        _kill(self.running.pop(name))

    def committed(self) -> int:
        """The newest batch that Spark has committed; -1 if none."""
        with suppress(FileNotFoundError):
            names = os.listdir(self.home / "checkpoint/commits")
            return max((int(each) for each in names if each.isdigit()), default=-1)
        return -1

    def wait_for_batch(self, after: int) -> None:
        self._wait(lambda: self.committed() > after, "a batch")

    def wait_for_warm(self, words: str = "") -> None:
        """Waits until one waits, is warm, and says so with these words."""
        storage = open_lease(self.home / "lease")[1]

        def is_warm() -> bool:
            return any(
                each.readiness.startswith("warm")
                and words in each.readiness
                and each.holder.name in self.running
                for each in all_waiting(storage).values()
            )

        self._wait(is_warm, "a warm standby")

    def active(self) -> str:
        term = newest_term(open_lease(self.home / "lease")[1])
        assert term is not None, "one has committed a batch"
        return term.holder.name

    def _wait(self, is_so: Callable[[], bool], what: str) -> None:
        until_s = time.monotonic() + _PATIENCE_S
        while not is_so():
            has_ended = any(process.poll() is not None for process in self.running.values())
            if has_ended or time.monotonic() > until_s:
                raise ChildProcessError(f"Waited in vain for {what}.")
            time.sleep(0.005)


def _kill(process: subprocess.Popen[bytes]) -> None:
    for pid in _session(process.pid):
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    process.wait()


def _session(leader: int) -> list[int]:
    """Processes of a session: Python's daemons leave the process group."""
    found = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        with suppress(FileNotFoundError, ProcessLookupError):
            fields = Path(f"/proc/{name}/stat").read_text().rpartition(")")[2].split()
            if int(fields[3]) == leader:
                found.append(int(name))
    return found


def _cpu_s(leader: int) -> float:
    """What all processes of a session have computed so far."""
    ticks = 0
    for pid in _session(leader):
        with suppress(FileNotFoundError, ProcessLookupError):
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            ticks += sum(int(each) for each in fields[11:15])  # with children that have ended
    return ticks / os.sysconf("SC_CLK_TCK")


def with_standby(shop: Shop, kills: int, report: Report) -> list[float]:
    """The gaps where another driver waits."""
    gaps = []
    shop.start("standby")
    shop.wait_for_batch(-1)
    shop.start("standby")
    with shop.orders_come():
        for number in range(kills):
            shop.wait_for_warm()
            active = shop.active()
            began_s = time.monotonic()
            shop.kill(active)
            before = shop.committed()
            shop.wait_for_batch(before)
            gaps.append(time.monotonic() - began_s)
            report.note(f"standby, kill {number + 1}: {gaps[-1]:.2f} s")
            shop.start("standby")
    return gaps


def costs(shop: Shop, report: Report) -> None:
    """What a standby computes, and what the active one computes with one and without, in turns."""
    shop.start("standby")
    shop.wait_for_batch(-1)
    active = shop.active()
    waits: list[float] = []
    shares: dict[bool, list[float]] = {True: [], False: []}
    with shop.orders_come(int(_RATE * _EVERY_S)):
        shop.wait_for_batch(shop.committed() + 20)
        for has_standby in [False, True] * _TURNS:
            if not has_standby:
                shares[False] += _shares(shop, active)
                continue
            name = shop.start("standby")
            shop.wait_for_warm()
            share, waited = _shares(shop, active, name)
            shares[True].append(share)
            waits.append(waited)
            shop.kill(name)
    report.add(Figure("what a warm standby computes", median(waits), "cores", 0.05))
    ratio = median(shares[True]) / median(shares[False])
    report.add(Figure("what the active one computes, with / without a standby", ratio, "x", 1.01))
    report.note(f"the active one, in cores: {shares}")


def apart(shop: Shop, report: Report) -> None:
    """What following costs, and what it is worth."""
    shop.start("standby")
    shop.wait_for_batch(-1)
    waiting = shop.start("standby")
    with shop.orders_come(int(_RATE * _EVERY_S)):
        shop.wait_for_warm(_FOLLOWS)
        shares = [share for _ in range(_TURNS) for share in _shares(shop, waiting)]
        began_s, before = time.monotonic(), shop.committed()
        shop.kill(shop.active())
        shop.wait_for_batch(max(before, shop.committed()))
        gap_s = time.monotonic() - began_s
    report.add(Figure("what a standby on another host computes", median(shares), "cores", 0.05))
    report.add(Figure("  kill to new result there", gap_s, "s", 4.0))


def _shares(shop: Shop, *names: str) -> list[float]:
    """What each of them computes, in cores."""
    pids = [shop.running[name].pid for name in names]
    used_s = [_cpu_s(pid) for pid in pids]
    time.sleep(_COSTS_S)
    return [(_cpu_s(pid) - used) / _COSTS_S for pid, used in zip(pids, used_s, strict=True)]


def with_restart(shop: Shop, kills: int, report: Report) -> list[float]:
    """The gaps where a new driver is started at once: a supervisor would need to notice first."""
    gaps = []
    name = shop.start("alone")
    shop.wait_for_batch(-1)
    with shop.orders_come():
        for number in range(kills):
            shop.wait_for_batch(shop.committed() + 2)
            began_s = time.monotonic()
            shop.kill(name)
            before = shop.committed()
            name = shop.start("alone")
            shop.wait_for_batch(before)
            gaps.append(time.monotonic() - began_s)
            report.note(f"restart, kill {number + 1}: {gaps[-1]:.2f} s")
    return gaps


@contextmanager
def a_shop(windows: int, *, is_apart: bool = False) -> Iterator[Shop]:
    """One in a directory of its own; whoever works in it ends with it."""
    with (
        tempfile.TemporaryDirectory(prefix="trailmark-bench-") as folder,
        ExitStack() as until_the_end,
    ):
        yield Shop(Path(folder), windows, until_the_end, is_apart=is_apart)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.standby", description=__doc__)
    parser.add_argument("--kills", type=int, default=20, help="with a standby")
    parser.add_argument("--restarts", type=int, default=20, help="without a standby")
    parser.add_argument("--windows", type=int, default=100_000, help="that are open")
    parser.add_argument("--no-costs", action="store_true", help="leave out what a standby costs")
    parser.add_argument("--apart", action="store_true", help="only a standby as on another host")
    arguments = parser.parse_args()
    report = Report()
    if arguments.apart:
        with a_shop(arguments.windows, is_apart=True) as shop:
            apart(shop, report)
        return report.exit_code
    if not arguments.no_costs:
        with a_shop(arguments.windows) as shop:
            costs(shop, report)
    standby: list[float] = []
    restart: list[float] = []
    if arguments.kills:
        with a_shop(arguments.windows) as shop:
            standby = with_standby(shop, arguments.kills, report)
        report.add(Figure("kill to new result, warm standby (median)", median(standby), "s", 2.5))
        if len(standby) >= _MANY:
            report.add(Figure("  99 of 100 within", quantiles(standby, n=100)[98], "s", 4.0))
        report.add(Figure("  the slowest", max(standby), "s"))
    if arguments.restarts:
        with a_shop(arguments.windows) as shop:
            restart = with_restart(shop, arguments.restarts, report)
        report.add(Figure("kill to new result, restart (median)", median(restart), "s"))
    if standby and restart:
        ratio = median(standby) / median(restart)
        report.add(Figure("  warm standby / restart", ratio, "x"))
    return report.exit_code


if __name__ == "__main__":
    sys.exit(main())
