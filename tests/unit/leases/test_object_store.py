"""Leases in a real (if small) S3 server."""

from __future__ import annotations

from contextlib import ExitStack

import pytest

from tests.support.object_store import new_bucket, s3_server, use_s3
from tests.support.s3_proxy import Fault, proxy_before
from trailmark.errors import SettingError
from trailmark.leases import Fenced, Holder, Keeper, Keeping, Lease, Pass, open_lease
from trailmark.log import open_storage
from trailmark.settings import SECOND


def test_a_lease_is_taken_kept_run_out_and_fenced(s3_url: str) -> None:
    now_us = 0.0

    def process(name: str) -> Lease:
        storage = open_lease(f"{s3_url}/lease")[1]
        return Lease(storage, Holder(name, name, "host", 1), SECOND, now_us=lambda: now_us)

    a, b = process("a"), process("b")
    assert a.take()
    for _ in range(5):
        now_us += SECOND / 2
        assert not b.take()
        assert a.renew()
    assert not b.take()
    passed = Pass(f"{s3_url}/lease", "a", SECOND, now_us=lambda: now_us)
    fenced = Fenced(open_storage(f"{s3_url}/logs"), passed)
    assert fenced.publish("x/0", [b""])
    now_us += SECOND
    assert b.take()
    with pytest.raises(Exception, match="is held by b"):
        fenced.publish("x/1", [b""])
    assert not a.renew()
    assert len(open_storage(f"{s3_url}/lease").list("terms")) == 2


def test_of_processes_that_start_at_once_one_has_it_and_hands_over(s3_url: str) -> None:
    with ExitStack() as until_the_end:
        keepers = []
        for name in "abc":
            path, storage = open_lease(f"{s3_url}/lease")
            keeper = Keeper(path, storage, Holder(name * 32, name, "host", 1), 5 * SECOND)
            until_the_end.callback(keeper.end)
            keepers.append(keeper)
        for keeper in keepers:
            keeper.start()
        while not any(each.is_held for each in keepers):
            keepers[0].wait_while(Keeping.WAITING, 0.01)
        (first,) = (each for each in keepers if each.state is Keeping.HELD)
        first.end()
        others = [each for each in keepers if each is not first]
        while not any(each.is_held for each in others):
            others[0].wait_while(Keeping.WAITING, 0.01)
        assert sum(each.state is Keeping.HELD for each in keepers) == 1


def test_one_whose_requests_hang_finds_out_once_others_get_through(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A request that is never answered would keep it from looking for minutes."""
    with ExitStack() as until_the_end:
        endpoint = until_the_end.enter_context(s3_server())
        proxy = until_the_end.enter_context(proxy_before(endpoint))
        use_s3(endpoint, monkeypatch)
        url = f"{new_bucket()}/lease"
        keepers = []
        for name, reached_by in (("a", proxy.endpoint), ("b", endpoint)):
            use_s3(reached_by, monkeypatch)
            path, storage = open_lease(url, SECOND)
            keepers.append(Keeper(path, storage, Holder(name * 32, name, "host", 1), SECOND))
            until_the_end.callback(keepers[-1].end)
        a, b = keepers
        a.start()
        assert a.wait_while(Keeping.WAITING, 30) is Keeping.HELD
        b.start()
        proxy.delay_seconds = 600
        proxy.begin(lambda number, method: Fault.DELAYED)
        assert b.wait_while(Keeping.WAITING, 30) is Keeping.HELD
        assert not a.is_held
        proxy.begin(None)
        assert a.wait_while(Keeping.HELD, 30) is Keeping.LOST


def test_no_lease_is_among_logs_in_a_bucket(s3_url: str) -> None:
    open_storage(f"{s3_url}/logs").publish("meta.json", [b"{}"])
    with pytest.raises(SettingError, match="inside of the logs at"):
        open_lease(f"{s3_url}/logs/deep/lease")


def test_rights_for_a_prefix_are_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    with s3_server(only_below="some/prefix") as endpoint:
        use_s3(endpoint, monkeypatch)
        path, storage = open_lease(f"{new_bucket()}/orders.lease")
        assert Lease(storage, Holder("a", "a", "host", 1), SECOND).take()
        open_storage(f"{path}/logs").publish("meta.json", [b"{}"])
        with pytest.raises(SettingError, match="inside of the logs"):
            open_lease(f"{path}/logs/lease")
