"""Kills, stops and cuts off two replicas, in turn and at once, for as long as asked, while their
results are followed.

``python -m tests.soak_replicas --seconds 3600`` prints the first seed; every round has the next
one. A round is a pair of replicas, each a Spark application of its own, to which things are done
in random order, and a hundred simulated pairs with who follows them, twice: with tentative results
and without.
"""

from __future__ import annotations

import argparse
import os
import random
import secrets
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack, suppress
from pathlib import Path

from tests.conftest import pytest_configure
from tests.support.answered_follower import run_answered_follower
from tests.support.follower import run_follower
from tests.support.replica_streams import START, Streams, Windows, replica_query
from tests.support.spark_runs import Application, wait_until
from trailmark.log import open_storage
from trailmark.streams.replicas.choosing import Replicas
from trailmark.streams.replicas.comparing import compare
from trailmark.streams.replicas.numbered import NumberedResults
from trailmark.streams.replicas.positions import Position

_HARMS, _SIMULATED = 12, 100
_READER = "soak"
_COLUMNS = ("item", "window", "n", "total")
_NAMES = ("a", "b")


class Pair:
    """Two replicas, and who follows them through links that can be cut."""

    def __init__(self, root: Path, seed: int, until_the_end: ExitStack) -> None:
        self._root = root
        self._rng = random.Random(seed)
        self._until_the_end = until_the_end
        self._lives = 0
        self.streams = Streams(root / "in")
        self.streams.go_on(2)
        self._queries = {name: replica_query(root, name) for name in _NAMES}
        self._running = {name: self._started(name) for name in _NAMES}
        self._links = {name: root / f"to-{name}" for name in _NAMES}
        for name in _NAMES:
            self._running[name].wait_for_batch(self._queries[name])
            self._mend(name)
        self._replicas = self._opened()
        self._position: Position | None = None
        self._rows: Windows = Counter()

    def _started(self, name: str) -> Application:
        self._lives += 1
        directory = self._root / f"{name}-{self._lives}"
        application = Application(directory, [self._queries[name]], master="local[1]")
        return self._until_the_end.enter_context(application)

    def _opened(self) -> Replicas:
        return Replicas({name: open_storage(link) for name, link in self._links.items()})

    def _mend(self, name: str) -> None:
        if not self._links[name].exists():
            self._links[name].symlink_to(self._queries[name].path)

    # Following

    def follow(self) -> None:
        """A batch of whoever follows, who is started anew now and then."""
        if self._rng.random() < 0.1:
            self._replicas = self._opened()
        replicas = self._replicas
        position = self._position or replicas.before_all()
        if position is None:
            return
        replicas.acknowledge(_READER, position)
        seen = replicas.look()
        path = replicas.choose(position, seen)
        if path is None:
            return
        end = seen[path].given
        for planned, pieces in replicas.plan(position, end, path).items():
            for piece in pieces:
                for rows in replicas.read(planned, piece, _COLUMNS):
                    for row in rows.to_pylist():
                        begin = round((row["window"]["start"] - START).total_seconds())
                        self._rows[row["item"], begin, row["n"], row["total"]] += 1
        self._position = end

    def wait_for_all(self) -> None:
        """Waits until whoever follows has every window that has ended, and none twice."""
        expected = self.streams.windows()

        def has_all() -> bool:
            self.follow()
            return self._rows.total() >= expected.total()

        wait_until(f"windows up to second {self.streams.seconds}", has_all, 240)
        assert self._rows == expected

    # Harm

    def harm(self) -> str:
        """Something happens to one of them, or to both, and the streams go on."""
        what = self._rng.choice(sorted(_HARMS_OF))
        _HARMS_OF[what](self)
        return what

    def kill(self) -> None:
        """One dies, and comes back when the other has gone on."""
        name = self._rng.choice(_NAMES)
        self._running[name].kill_driver(with_workers=self._rng.random() < 0.5)
        self._go_on()
        self._running[name] = self._started(name)

    def kill_both(self) -> None:
        for name in _NAMES:
            self._running[name].kill_driver(with_workers=True)
        self.streams.go_on(self._rng.randint(1, 6))
        for name in _NAMES:
            self._running[name] = self._started(name)
        self.wait_for_all()

    def stop(self) -> None:
        """One stands still for a while, and wakes."""
        name = self._rng.choice(_NAMES)
        self._signal(name, signal.SIGSTOP)
        self._go_on()
        self._signal(name, signal.SIGCONT)

    def _signal(self, name: str, number: signal.Signals) -> None:
        for process in self._running[name].processes():
            with suppress(ProcessLookupError):
                os.kill(process.pid, number)

    def cut(self) -> None:
        """Whoever follows cannot read one of them."""
        name = self._rng.choice(_NAMES)
        self._links[name].unlink()
        self._go_on()
        self._mend(name)

    def cut_both(self) -> None:
        for name in _NAMES:
            self._links[name].unlink()
        self.streams.go_on(self._rng.randint(1, 6))
        self.follow()
        for name in _NAMES:
            self._mend(name)
        self.wait_for_all()

    def _go_on(self) -> None:
        for _ in range(self._rng.randint(1, 3)):
            self.streams.go_on(self._rng.randint(1, 6))
            self.wait_for_all()

    def finish(self) -> None:
        """Both come to the end of the streams, with the same results."""
        self.wait_for_all()
        paths = [query.path for query in self._queries.values()]
        expected = self.streams.windows().total()

        def are_there() -> bool:
            one, other = (NumberedResults(open_storage(path), path) for path in paths)
            found = compare(one, other)
            assert found.are_equal, found.describe()
            return found.compared == expected

        wait_until("both have everything", are_there, 240)


_HARMS_OF: dict[str, Callable[[Pair], None]] = {
    "kill": Pair.kill,
    "kill both": Pair.kill_both,
    "stop": Pair.stop,
    "cut": Pair.cut,
    "cut both": Pair.cut_both,
}


def run_round(seed: int, harms: int = _HARMS, simulated: int = _SIMULATED) -> Counter[str]:
    """One pair from its start to its end, judged; what was done to it."""
    for number in range(simulated):
        run_follower(seed * _SIMULATED + number)
        run_answered_follower(seed * _SIMULATED + number)
    done: Counter[str] = Counter()
    with tempfile.TemporaryDirectory(prefix="trailmark-soak-") as root, ExitStack() as to_the_end:
        pair = Pair(Path(root), seed, to_the_end)
        for _ in range(harms):
            done[pair.harm()] += 1
        pair.finish()
    return done


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.soak_replicas", description=__doc__)
    parser.add_argument("--seconds", type=float, required=True)
    parser.add_argument("--seed", type=int, default=secrets.randbelow(2**31))
    arguments = parser.parse_args()
    pytest_configure()
    until, seed = time.monotonic() + arguments.seconds, arguments.seed
    print(f"first seed: {seed}", flush=True)
    done: Counter[str] = Counter()
    while True:
        try:
            done += run_round(seed)
        except Exception:  # noqa: BLE001  (whatever it was, the seed is what matters)
            traceback.print_exc()
            print(f"SOAK_SEED={seed} repeats it", flush=True)
            return 1
        told = ", ".join(f"{what} {times}" for what, times in sorted(done.items()))
        print(f"seed {seed}: all results came once ({told})", flush=True)
        seed += 1
        if time.monotonic() >= until:
            return 0


if __name__ == "__main__":
    sys.exit(main())
