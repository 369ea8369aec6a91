"""The queries on Trailmark's operators."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

import trailmark as tm
from bench.nexmark.operators import Highest, Hottest, LastTen, Sessions
from bench.nexmark.plain import CATEGORY, REACH_MS, SLIDE_MS, STATES, WINDOW_MS
from bench.nexmark.tables import Tables, window_start

_WINDOW, _SLIDE, _REACH = (f"{ms} milliseconds" for ms in (WINDOW_MS, SLIDE_MS, REACH_MS))
#: Bids of a window are looked at in so many parts, so that more than one task has work.
_PARTS = 4


def q3(tables: Tables) -> DataFrame:
    people = tables.person.where(F.col("state").isin(*STATES))
    offered = tables.auction.where(F.col("category") == CATEGORY)
    near = tm.interval("joined", "opened", before=_REACH, after=_REACH)
    pairs = tm.join(
        people,
        offered.select(F.col("id").alias("auction"), F.col("seller").alias("id"), "opened"),
        on="id",
        within=near,
        **_kept(tables, "join"),
    )
    return pairs.select("auction", "name", "city", "state")


def _sold(tables: Tables, of: str) -> DataFrame:
    """Auctions with their highest bid, in windows of their expiry."""
    longest = f"{tables.longest_ms} milliseconds"
    # A bid is at most so much earlier than the end of its auction. Auctions do not come in the
    # order in which they end, and are late by no more than that.
    open_then = tm.interval("expires", "at", before=longest, delay=(longest, "0 seconds"))
    bids = tm.join(
        tables.auction.select(F.col("id").alias("auction"), of, "opened", "expires"),
        tables.bid.select("auction", "price", "at"),
        on="auction",
        within=open_then,
        condition="at >= opened",
        **_kept(tables, "join"),
    )
    return tm.aggregate(
        bids.select("auction", of, "price", "expires"),
        by=["auction", of],
        window=tm.time_window("expires", _WINDOW, delay=longest),
        values={"price": tm.max("price"), "expired": tm.max("expires")},
        **_kept(tables, "winners"),
    )


def q4(tables: Tables) -> DataFrame:
    sold = _sold(tables, "category").withColumn("start", F.col("window.start"))
    prices = tm.aggregate(
        sold.select("category", "start", "price"),
        by="category",
        window=tm.time_window("start", _WINDOW),
        values={"price": tm.avg("price")},
        **_kept(tables, "averages"),
    )
    return prices.select("category", F.col("window.start").alias("start"), "price")


def q5(tables: Tables) -> DataFrame:
    counts = tm.aggregate(
        tables.bid.select("auction", "at"),
        by="auction",
        window=tm.time_window("at", _WINDOW, slide=_SLIDE),
        values={"num": tm.count()},
        **_kept(tables, "counts"),
    )
    return tm.apply(
        counts.select("auction", F.col("window.start").alias("start"), "num"),
        Hottest,
        by="start",
        time="start",
        schema="auction long, start timestamp, num long",
        **_kept(tables, "hottest"),
    )


def q6(tables: Tables) -> DataFrame:
    sold = _sold(tables, "seller")
    return tm.apply(
        sold.select("seller", F.col("expired").alias("expires"), "price"),
        LastTen,
        by="seller",
        order_by="expires",
        schema="seller long, expires timestamp, price double",
        **_kept(tables, "last"),
    )


def q7(tables: Tables) -> DataFrame:
    schema = "auction long, start timestamp, bidder long, price long, at timestamp"
    bids = tables.bid.select("auction", "bidder", "price", "at", window_start("at"))
    parts = tm.apply(
        bids.withColumn("part", F.unix_millis("at") % _PARTS),
        Highest(WINDOW_MS),
        by=["start", "part"],
        time="at",
        schema=schema,
        **_kept(tables, "parts"),
    )
    return tm.apply(
        parts, Highest(1), by="start", time="start", schema=schema, **_kept(tables, "windows")
    )


def q8(tables: Tables) -> DataFrame:
    sellers = tm.aggregate(
        tables.auction.select("seller", "opened"),
        by="seller",
        window=tm.time_window("opened", _WINDOW),
        values={"num": tm.count()},
        **_kept(tables, "sellers"),
    )
    start = F.col("window.start")
    selling = sellers.select(F.col("seller").alias("id"), start.alias("start"), start.alias("from"))
    new = tm.join(
        tables.person.select("id", "name", "joined", window_start("joined")),
        selling,
        on=["id", "start"],
        within=tm.interval("joined", "from", before=_WINDOW),
        **_kept(tables, "join"),
    )
    return new.select("id", "start", "name")


def q11(tables: Tables) -> DataFrame:
    return tm.apply(
        tables.bid.select("bidder", "at"),
        Sessions,
        by="bidder",
        time="at",
        schema="bidder long, start timestamp, end timestamp, num long",
        **_kept(tables, "sessions"),
    )


def q12(tables: Tables) -> DataFrame:
    counts = tm.aggregate(
        tables.bid.select("bidder", "arrived"),
        by="bidder",
        window=tm.time_window("arrived", _WINDOW),
        values={"num": tm.count()},
        **_kept(tables, "counts"),
    )
    return counts.select("bidder", F.col("window.start").alias("start"), "num")


def _kept(tables: Tables, operator: str) -> dict[str, Any]:
    """Where an operator keeps its logs; its policy is the default."""
    return {
        "path": tables.place / operator,
        "buckets": tables.partitions,
        "cache_dir": tables.cache and tables.cache / operator,
    }


QUERIES: dict[str, Callable[[Tables], DataFrame]] = {
    query.__name__: query for query in (q3, q4, q5, q6, q7, q8, q11, q12)
}
