"""``trailmark status`` of a lease: who is active, who waits, for people and as JSON."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.unit.cli.conftest import Run
from trailmark.leases import Holder, Keeper, Keeping, open_lease
from trailmark.leases.status import LeaseStatus, LeaseStatusReader
from trailmark.leases.terms import Term, publish_term
from trailmark.leases.waiting import Waiting, say_waiting
from trailmark.settings import SECOND

_TERM_US = SECOND // 2


@contextmanager
def _kept(path: Path, name: str, readiness: str = "") -> Iterator[Keeper]:
    full, storage = open_lease(path)
    keeper = Keeper(full, storage, Holder(name * 32, name, "host", 7), _TERM_US)
    keeper.say_ready(readiness)
    keeper.start()
    try:
        yield keeper
    finally:
        keeper.end()


def test_it_shows_who_is_active_and_who_waits_how_warm(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "lease"
    with ExitStack() as until_the_end:
        a = until_the_end.enter_context(_kept(path, "a"))
        assert a.wait_while(Keeping.WAITING, 30) is Keeping.HELD
        until_the_end.enter_context(_kept(path, "b", "warm: rehearsal 3 took 800 ms"))
        dead = Holder("d" * 32, "dead", "host", 9)
        say_waiting(open_lease(path)[1], Waiting(dead, 5, "warm"))
        while len(list((path / "waiting").glob("*.json"))) < 2:
            time.sleep(0.01)
        said = run("status", path)
        assert said.code == 0
        assert f"{path}: lease\n" in said.out
        assert "active: a (host:7), turn 1, since 20" in said.out
        assert "a term is 500 ms; renewed while looked at" in said.out
        b, silent = said.out.splitlines()[-2:]
        assert b.split()[:3] == ["b", "host", "7"]
        assert b.endswith("warm: rehearsal 3 took 800 ms")
        assert silent.endswith("silent; was: warm")
        found = run("status", path, "--json").json
        assert found["active"] == {"name": "a", "host": "host", "pid": 7}
        assert [(each["name"], each["is_there"]) for each in found["waiting"]] == [
            ("b", True),
            ("dead", False),
        ]


def test_a_lease_that_nobody_has_is_told_as_wrong(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "lease"
    storage = open_lease(path)[1]
    assert run("status", path).out.endswith("nobody has had it yet\nnobody waits\n")
    holder = Holder("a" * 32, "a", "host", 7)
    publish_term(storage, Term(0, holder, 4, _TERM_US))
    said = run("status", path)
    assert said.code == 1
    assert "run out: a (host:7) was silent for " in said.out
    publish_term(storage, Term(1, holder, 4, _TERM_US, is_released=True))
    said = run("status", path)
    assert (said.code, "free: a (host:7) has given it back" in said.out) == (1, True)
    publish_term(storage, Term(2, Holder("b" * 32, "\x1b[2Jb", "host", 7), 5, _TERM_US))
    assert "\x1b" not in run("status", path).out
    storage.publish(f"terms/{3:020d}.json", [b"no json"])
    assert "cannot be read" in run("status", path).out


@dataclass
class _Looked:
    """Looks at a lease in a time of its own; ``renews_us`` apart, its holder says something."""

    path: Path
    term_us: int
    renews_us: float = float("inf")
    now_us: float = 0.0
    number: int = 0

    def status(self) -> LeaseStatus:
        storage = open_lease(self.path)[1]

        def say() -> None:
            publish_term(storage, Term(self.number, Holder("a" * 32, "a", "h", 7), 0, self.term_us))

        def sleep(seconds: float) -> None:
            self.now_us += seconds * SECOND
            if self.now_us > (self.number + 1) * self.renews_us:
                self.number += 1
                say()

        say()
        say_waiting(storage, Waiting(Holder("d" * 32, "dead", "host", 9), 5, "warm"))
        return LeaseStatusReader(storage, now_us=lambda: self.now_us, sleep=sleep).read()


def test_that_nobody_is_active_is_seen_with_terms_as_long_as_object_stores_want_them(
    tmp_path: Path,
) -> None:
    dead = _Looked(tmp_path / "dead", 10 * SECOND)
    assert not dead.status().is_sound
    alive = _Looked(tmp_path / "alive", 10 * SECOND, renews_us=2.5 * SECOND)
    assert alive.status().is_sound
    assert alive.now_us < 4 * SECOND, "nobody waits longer for one that waits and is gone"


@pytest.mark.parametrize("command", ["verify", "log", "trim"])
def test_what_has_no_logs_to_show_says_so(run: Run, tmp_path: Path, command: str) -> None:
    path = tmp_path / "lease"
    open_lease(path)
    more = ["--before-batch", "1"] if command == "trim" else []
    said = run(command, path, *more)
    assert said.code == 2
    assert "no Trailmark log" in said.err
