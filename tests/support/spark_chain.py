"""Five operators in one query, each with a policy of its own: an aggregate, a keyed operator,
another aggregate, a whole operator, and a join of what comes out with what went in; and the same
once more in plain Python, batch by batch.

A shuffle does not keep the order of rows. So nothing here depends on the order within a batch: the
keyed operator gives one row for each key and batch, and those behind it never see two. The join
pairs a row with the price that its item had in the batches before.
"""

from __future__ import annotations

import json
import time
from collections import defaultdict
from collections.abc import Sequence
from typing import Any, ClassVar, Protocol

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

import trailmark as tm
from tests.support.oracle import Oracle, Row
from tests.support.traps import meet_traps

_FIRST_WINDOW, _SECOND_WINDOW = tm.count_window(4), tm.count_window(2)
_FIRST_VALUES = {"total": tm.sum("price"), "load": tm.sum("weight")}
_SECOND_VALUES = {"most": tm.max("total"), "n": tm.sum("n")}
_KEPT = 5
_SUMS = "item int, n bigint, total bigint"
_RESULTS = "item int, most bigint, n bigint, recent bigint, met bigint"


class Chained(Protocol):
    """What a chain has to know of its query."""

    @property
    def path(self) -> str: ...
    @property
    def cache(self) -> str: ...
    @property
    def trap(self) -> str: ...
    @property
    def buckets(self) -> int: ...
    @property
    def slow_s(self) -> float: ...


class Sums:
    """A keyed operator: how many windows an item has had, and what their totals add up to."""

    state: ClassVar[Any] = {"n": pa.int64(), "total": pa.int64(), "lately": pa.list_(pa.int64())}

    def __init__(self, trap: str, slow_s: float) -> None:
        self._trap = trap
        self._slow_s = slow_s

    def process(self, keys: Any, rows: pa.RecordBatch, state: Any) -> pa.Table:
        meet_traps(self._trap)
        time.sleep(self._slow_s)
        sums = np.zeros(len(keys), dtype=np.int64)
        np.add.at(sums, keys.of_rows, rows["total"].fill_null(0).to_numpy())
        state["n"] += keys.counts()
        state["total"] += sums
        state["lately"].append(np.arange(len(keys)), sums)
        state["lately"].keep_last(_KEPT)
        return keys.table(n=state["n"], total=state["total"])


class Met:
    """A whole operator: how often it has met an item, and the last figures of it."""

    def __init__(self, trap: str) -> None:
        self._trap = trap
        self._lately: dict[int, list[int]] = {}

    def process(self, batch: pa.RecordBatch) -> pa.Table | None:
        meet_traps(self._trap)
        found = []
        for row in batch.to_pylist():
            lately = [*self._lately.get(row["item"], []), row["most"]]
            self._lately[row["item"]] = lately
            found.append({**row, "recent": sum(lately[-_KEPT:]), "met": len(lately)})
        return pa.Table.from_pylist(found) if found else None

    def get_checkpoint(self) -> bytes:
        return json.dumps(list(self._lately.items())).encode()

    def restore_checkpoint(self, state: bytes) -> None:
        self._lately = dict(json.loads(state))


_OPERATORS = ("first", "sums", "second", "met", "priced")


def chain_paths(query: Chained) -> dict[str, str]:
    """Where each of the operators keeps its logs. The keyed one has the query's own path."""
    return {name: query.path if name == "sums" else f"{query.path}-{name}" for name in _OPERATORS}


def chain(rows: DataFrame, query: Chained) -> DataFrame:
    """All five of them."""
    paths = chain_paths(query)

    def given(name: str) -> dict[str, Any]:
        return {"path": paths[name], "buckets": query.buckets, "cache_dir": query.cache or None}

    first = tm.aggregate(
        rows,
        by="item",
        window=_FIRST_WINDOW,
        values=_FIRST_VALUES,
        checkpoint=tm.Continuous(q=100, u=300),
        retain_batches=None,
        **given("first"),
    )
    sums = tm.apply(
        first,
        Sums(query.trap, query.slow_s),
        by="item",
        schema=_SUMS,
        # Longer than an application lives that is killed: else each begins with a snapshot, and
        # whoever recovers after a batch or two finds nothing to replay.
        checkpoint=tm.Periodic("1 minute"),
        retain_batches=None,
        **given("sums"),
    )
    second = tm.aggregate(
        sums,
        by="item",
        window=_SECOND_WINDOW,
        values=_SECOND_VALUES,
        checkpoint=tm.UpstreamBackup(),
        **given("second"),
    )
    met = Met(query.trap)
    results = tm.apply(
        second, met, by="item", schema=_RESULTS, recover_within="1 second", **given("met")
    )
    priced = tm.join(
        results.withColumn("turn", F.lit(0)),
        rows.select("item", "price", F.lit(1).alias("turn")),
        on="item",
        windows=(tm.last_tuples(0), tm.last_tuples(1, per_key=True)),
        how="left",
        order_by="turn",
        checkpoint=tm.Incremental(2, group_size=2),
        **given("priced"),
    )
    return priced.drop("turn_left", "turn_right")


def chain_results(schema: pa.Schema, batches: Sequence[Sequence[Row]]) -> list[Row]:
    """What comes out of the chain for the rows of each batch."""
    first = Oracle(schema, by=["item"], window=_FIRST_WINDOW, values=_FIRST_VALUES)
    middle = pa.schema([("item", pa.int32()), ("n", pa.int64()), ("total", pa.int64())])
    second = Oracle(middle, by=["item"], window=_SECOND_WINDOW, values=_SECOND_VALUES)
    sums: dict[int, tuple[int, int]] = defaultdict(lambda: (0, 0))
    lately: dict[int, list[int]] = defaultdict(list)
    prices: dict[int, int | None] = {}
    results: list[Row] = []
    for batch, rows in enumerate(batches):
        changed: dict[int, Row] = {}
        for window in first.process(batch, list(rows), None, None).results:
            n, total = sums[window["item"]]
            sums[window["item"]] = n, total = n + 1, total + (window["total"] or 0)
            changed[window["item"]] = {"item": window["item"], "n": n, "total": total}
        for window in second.process(batch, list(changed.values()), None, None).results:
            lately[window["item"]].append(window["most"])
            met = lately[window["item"]]
            results.append(
                {
                    **{name: window[name] for name in ("item", "most", "n")},
                    "recent": sum(met[-_KEPT:]),
                    "met": len(met),
                    "price": prices.get(window["item"]),
                }
            )
        prices |= {row["item"]: row["price"] for row in rows}
    return results
