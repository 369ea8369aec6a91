"""Everything a query keeps is in an object store that misbehaves: its logs, and Spark's own
checkpoint."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.hadoop_s3 import on_s3, s3_conf, why_there_is_none, with_copied_checkpoint
from tests.support.object_store import new_bucket, s3_server, use_s3
from tests.support.s3_proxy import RandomFaults, proxy_before
from tests.support.spark_orders import Orders, assert_sink_is_right, make_query, recoveries
from tests.support.spark_runs import Application, hold_a_worker, release

pytestmark = pytest.mark.skipif(bool(why_there_is_none()), reason=why_there_is_none())

#: Of requests that meet a fault. Spark makes some fifty of them in a batch, each after the other.
_SHARE = 0.04


def test_a_query_whose_checkpoint_is_on_s3_loses_nothing_to_faults_of_the_store_and_a_kill(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    orders = Orders(tmp_path / "in", seed=41)
    orders.feed(8)
    with s3_server() as endpoint, proxy_before(endpoint) as proxy:
        use_s3(proxy.endpoint, monkeypatch)
        query = on_s3(make_query(tmp_path, orders, "count"), new_bucket())
        proxy.begin(RandomFaults(seed=41, share=_SHARE))
        conf = s3_conf(proxy.endpoint)
        with Application(tmp_path / "app", [query], conf=conf) as application:
            for batch in range(3):
                application.wait_for_batch(query, batch)
            hold_a_worker(application, query)
            application.kill_driver(with_workers=True)
            release(query)
        with Application(tmp_path / "app", [query], conf=conf) as application:
            application.finish()
        met = len(proxy.met)
        proxy.begin(None)
        copied = with_copied_checkpoint(query, tmp_path / "copied")
        assert_sink_is_right(copied, orders)
        assert recoveries(copied), "the state was lost with the driver"
    assert met > 10, "that would be a quiet store"
