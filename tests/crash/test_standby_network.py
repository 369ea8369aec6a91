"""Two drivers with `tm.standby` whose lease and logs are in an object store that the active one,
the other one or both cannot reach for a while."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.support.network import LinkedHost, hosts_on_a_switch, s3_on
from tests.support.object_store import new_bucket, use_s3
from tests.support.seeds import seeds
from tests.support.standbys import TERM, Pair
from trailmark.settings import SECOND, parse_duration

_DOWN_S = 2 * parse_duration(TERM, "term") / SECOND


@pytest.fixture
def hosts(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[LinkedHost]]:
    """Where drivers run; the store is on a host of its own."""
    with hosts_on_a_switch(3, joins=True) as (store, *others), s3_on(store) as endpoint:
        use_s3(endpoint, monkeypatch)
        # What is cut off finds out, and does not wait for minutes.
        monkeypatch.setenv("AWS_TIMEOUT", "3 seconds")
        monkeypatch.setenv("AWS_CONNECT_TIMEOUT", "1 second")
        yield others


@pytest.mark.parametrize("seed", seeds(1))
def test_whoever_is_cut_off_from_lease_and_logs_every_result_is_there_once(
    tmp_path: Path, hosts: list[LinkedHost], seed: int
) -> None:
    print(f"TRAILMARK_SEED={seed} TRAILMARK_CASES=1 repeats it, but for the moments.")
    with ExitStack() as until_the_end:
        pair = Pair(tmp_path, seed, until_the_end, new_bucket())
        pair.feed()
        places = {pair.start(host): host for host in hosts}
        pair.wait_for_active()
        pair.wait_for_waiting()
        active = pair.active()
        (waiting,) = (name for name in places if name != active)

        places[waiting].link.cut()
        time.sleep(_DOWN_S)
        pair.go_on()
        places[waiting].link.mend()
        assert pair.active() == active, "nobody else could ask for it"

        for host in hosts:
            host.link.cut()
        time.sleep(_DOWN_S)
        for host in hosts:
            host.link.mend()
        places = pair.go_on_with_two(places)

        pair.wait_for_waiting()
        pair.cut_off(places)
        pair.finish()
        print(pair.gaps_s)
