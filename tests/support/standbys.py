"""Two processes of one script with `tm.standby`, what is done to them, and what must come of it."""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path

from tests.support.network import Host, LinkedHost
from tests.support.spark_orders import (
    Orders,
    assert_sink_is_right,
    files_taken,
    make_query,
)
from tests.support.spark_runs import Application, wait_until
from tests.support.standby_query import StandbyConfig
from trailmark.leases import newest_term, open_lease
from trailmark.leases.waiting import all_waiting

#: Spark takes half a minute to start on a busy machine.
PATIENCE_S = 240.0
TERM = "3 seconds"
#: Files that are there before anything is done to the active one, and so many more while it is.
_AHEAD = 4


class Pair:
    """Both processes, of which one is active; whatever is left of them ends with the test.

    Logs and lease are in ``store`` if it is given, a directory or a URL.
    """

    def __init__(
        self, root: Path, seed: int, until_the_end: ExitStack, store: str | None = None
    ) -> None:
        self.rng = random.Random(seed)
        self.orders = Orders(root / "in", seed)
        query = make_query(root, self.orders, "count", slow_s=0.02)
        self.query = query if store is None else replace(query, path=f"{store}/log")
        self.lease = f"{root if store is None else store}/lease"
        self._root = root
        self._until_the_end = until_the_end
        self._begun = 0
        self.running: dict[str, Application] = {}
        #: From the moment of a failure to the first new result that was committed.
        self.gaps_s: list[tuple[str, float]] = []

    # Their life

    def start(self, on: Host | None = None) -> str:
        """Starts one more; returns its name."""
        name = f"p{self._begun}"
        self._begun += 1
        directory = self._root / name
        config = StandbyConfig(name, str(directory), self.lease, TERM, self.query)
        application = Application.of_standby(directory, config, () if on is None else on.start)
        self.running[name] = self._until_the_end.enter_context(application)
        return name

    def feed(self) -> None:
        self.orders.feed_until(_AHEAD, ahead_of=files_taken(self.query))

    def active(self) -> str:
        """The name of the one that has the lease."""
        term = newest_term(open_lease(self.lease)[1])
        assert term is not None
        return term.holder.name

    def wait_for_active(self, other_than: str | None = None) -> str:
        """Waits until one has committed a batch; returns its name."""

        def has_one() -> bool:
            return any(
                application.batches(self.query.name)
                for name, application in self.running.items()
                if name != other_than
            )

        self._wait_until("a batch is committed", has_one)
        (found,) = (
            name
            for name, application in self.running.items()
            if name != other_than and application.batches(self.query.name)
        )
        return found

    def wait_for_waiting(self, readiness: str = "") -> None:
        """Waits until the one that is not active waits, and says so of how ready it is."""
        (name,) = (name for name in self.running if name != self.active())
        storage = open_lease(self.lease)[1]

        def is_waiting() -> bool:
            found = all_waiting(storage).values()
            return any(each.holder.name == name and readiness in each.readiness for each in found)

        self._wait_until(f"{name} waits", is_waiting)

    def _wait_until(self, what: str, is_so: Callable[[], bool]) -> None:
        def has_come() -> bool:
            if is_so():
                return True
            for name, application in self.running.items():
                assert application.is_running, f"{what}: {name} ended\n{application.story()}"
            return is_so()

        try:
            wait_until(what, has_come, PATIENCE_S)
        except AssertionError as error:
            stories = [each.story() for each in self.running.values()]
            raise AssertionError("\n\n".join([str(error), *stories])) from None

    def go_on(self) -> None:
        """Waits until more is committed."""
        before = files_taken(self.query)
        self.feed()
        self._wait_until("more is committed", lambda: files_taken(self.query) > before)

    def go_on_with_two(self, hosts: Mapping[str, LinkedHost]) -> dict[str, LinkedHost]:
        """Waits until more is committed, whoever does it, and starts whoever has ended again, where
        it was; returns where they are."""
        before = files_taken(self.query)
        self.feed()
        wait_until("more is committed", lambda: files_taken(self.query) > before, PATIENCE_S)
        found = {}
        for name, host in hosts.items():
            wait_until(f"{name} knows what it is", partial(self._knows, name), PATIENCE_S)
            if self.running[name].is_running:
                found[name] = host
            else:
                del self.running[name]
                found[self.start(host)] = host
        return found

    def _knows(self, name: str) -> bool:
        """Whether it is active, waits, or has ended."""
        if not self.running[name].is_running or self.active() == name:
            return True
        waiting = all_waiting(open_lease(self.lease)[1]).values()
        return any(each.holder.name == name for each in waiting)

    def wait_for_all(self) -> None:
        """Waits until the active one has taken all files and committed them."""
        self._wait_until("all is taken", lambda: files_taken(self.query) == len(self.orders.files))
        batches = len(self.orders.files)
        application = self.running[self.active()]
        application.wait_until(
            "all is committed", lambda: max(application.batches(self.query.name)) + 1 >= batches
        )

    # Harm

    def kill_at_rest(self) -> None:
        """kill -9 of the active one while nothing is to be done; then there is something."""
        active = self.active()
        self.running.pop(active).kill_driver(with_workers=True)
        self.feed()
        self._follow("kill", active)

    def kill(self) -> None:
        """kill -9 of the active one, driver and JVM; it is started again, and waits."""
        active = self.active()
        self.feed()
        time.sleep(self.rng.uniform(0, 1))
        application = self.running.pop(active)
        application.kill_driver(with_workers=self.rng.random() < 0.5)
        self._follow("kill", active)
        self.start()

    def kill_jvm(self) -> None:
        """kill -9 of the active one's JVM alone: its driver says so, and the other goes on."""
        active = self.active()
        self.feed()
        application = self.running.pop(active)
        found = {p.pid: p.parent for p in application.processes() if "SparkSubmit" in p.command}
        # What it begins has its command, too, until it is what it will be.
        (jvm,) = (pid for pid, parent in found.items() if parent not in found)
        os.kill(jvm, signal.SIGKILL)
        self._follow("JVM", active)
        wait_until("it ends", lambda: not application.is_running, PATIENCE_S)
        self.start()

    def stop_and_wake(self) -> None:
        """SIGSTOP of all processes of the active one, for longer than a term; then SIGCONT."""

        def stop(zombie: Application) -> None:
            _signal(zombie, signal.SIGSTOP)

        def wake(zombie: Application) -> None:
            _signal(zombie, signal.SIGCONT)

        active = self.active()
        zombie = self._silence("stop", stop, wake)
        zombie.finish()
        assert zombie.said[-1] == "ended lost", zombie.story()
        told = [line for line in zombie.said if " lost by " in line]
        assert len(told) == 1, zombie.story()
        assert f" lost by {active} " in told[0], told
        assert self.active() in told[0], told
        self.start()

    def cut_off(self, hosts: Mapping[str, LinkedHost]) -> None:
        """The active one reaches neither lease nor logs, for longer than a term; then it does. It
        is not started again."""
        link = hosts[self.active()].link
        zombie = self._silence("cut", lambda _: link.cut(), lambda _: link.mend())
        told = [line for line in zombie.said if " lost by " in line or "cannot be renewed" in line]
        assert told, zombie.story()

    def _silence(
        self,
        harm: str,
        begin: Callable[[Application], None],
        end: Callable[[Application], None],
    ) -> Application:
        """Nothing is heard of the active one until another one goes on; then it has to end."""
        active = self.active()
        self.feed()
        time.sleep(self.rng.uniform(0, 0.5))
        zombie = self.running.pop(active)
        begin(zombie)
        self._follow(harm, active)
        self.feed()
        end(zombie)
        wait_until("the zombie ends", lambda: not zombie.is_running, PATIENCE_S)
        return zombie

    def terminate(self) -> None:
        """SIGTERM of the active one: it hands over."""
        active = self.active()
        self.feed()
        application = self.running.pop(active)
        application.terminate()
        self._follow("SIGTERM", active)
        application.finish()
        assert application.said[-1] == "ended stopped", application.story()
        self.start()

    def _follow(self, harm: str, before: str) -> None:
        began_s = time.monotonic()
        after = self.wait_for_active(other_than=before)
        self.gaps_s.append((harm, time.monotonic() - began_s))
        assert self.active() == after

    # The end

    def finish(self) -> None:
        """All files are taken, both are told to end, and every result is there, once."""
        self.feed()
        self._wait_until("all is taken", lambda: files_taken(self.query) == len(self.orders.files))
        for name in sorted(self.running, key=lambda each: each == self.active()):
            application = self.running.pop(name)
            application.terminate()
            application.finish()
            assert application.said[-1] == "ended stopped", application.story()
        assert_sink_is_right(self.query, self.orders)


def _signal(application: Application, number: int) -> None:
    for process in application.processes():
        os.kill(process.pid, number)


HARMS: dict[str, Callable[[Pair], None]] = {
    "kill": Pair.kill,
    "kill_jvm": Pair.kill_jvm,
    "stop_and_wake": Pair.stop_and_wake,
    "terminate": Pair.terminate,
}
