"""The queries on Spark's own operators, with the formulation that we found fastest for each."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pandas as pd
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

from bench.nexmark.plain import CATEGORY, GAP_MS, LAST, REACH_MS, SLIDE_MS, STATES, WINDOW_MS
from bench.nexmark.tables import Tables

_WINDOW, _SLIDE, _GAP = (f"{ms} milliseconds" for ms in (WINDOW_MS, SLIDE_MS, GAP_MS))
_IN_ORDER = "0 seconds"


def q3(tables: Tables) -> DataFrame:
    people = tables.person.where(F.col("state").isin(*STATES)).withWatermark("joined", _IN_ORDER)
    offered = tables.auction.where(F.col("category") == CATEGORY)
    offered = offered.select(F.col("id").alias("auction"), "seller", "opened")
    reach = f"INTERVAL {REACH_MS} MILLISECONDS"
    near = f"id = seller AND opened BETWEEN joined - {reach} AND joined + {reach}"
    pairs = people.join(offered.withWatermark("opened", _IN_ORDER), F.expr(near))
    return pairs.select("auction", "name", "city", "state")


def _sold(tables: Tables, of: str) -> DataFrame:
    """Auctions with their highest bid, in windows of their expiry."""
    auctions = tables.auction.select("id", of, "opened", "expires")
    bids = tables.bid.select("auction", "price", "at").withWatermark("at", _IN_ORDER)
    longest = f"{tables.longest_ms} MILLISECONDS"
    open_then = f"""
        id = auction AND at >= opened AND at BETWEEN expires - INTERVAL {longest} AND expires
    """
    pairs = auctions.withWatermark("expires", longest).join(bids, F.expr(open_then))
    winners = pairs.groupBy(F.window("expires", _WINDOW), "auction", of)
    return winners.agg(F.max("price").alias("price"), F.max("expires").alias("expired"))


def q4(tables: Tables) -> DataFrame:
    prices = _sold(tables, "category").groupBy("window", "category").agg(F.avg("price"))
    return prices.select("category", "window.start", F.col("avg(price)").alias("price"))


def q5(tables: Tables) -> DataFrame:
    bids = tables.bid.select("auction", "at").withWatermark("at", _IN_ORDER)
    counts = bids.groupBy(F.window("at", _WINDOW, _SLIDE), "auction").agg(F.count("*").alias("num"))
    each = F.collect_list(F.struct("auction", "num")).alias("each")
    windows = counts.groupBy("window").agg(F.max("num").alias("most"), each)
    hottest = windows.select("window", "most", F.explode("each").alias("one"))
    return hottest.where("one.num = most").select("one.auction", "window.start", "one.num")


class LastTen(StatefulProcessor):
    """q6: Spark has no windows of a count of rows, so a user has to write them."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self.state = handle.getValueState("last", "prices array<bigint>")

    def handleInputRows(
        self, key: Any, rows: Iterator[pd.DataFrame], timerValues: Any
    ) -> Iterator[pd.DataFrame]:
        new = pd.concat(list(rows)).sort_values("expired")
        (old,) = self.state.get() or ([],)
        prices = pd.Series([*old, *new["price"]], dtype="int64")
        averages = prices.rolling(LAST, min_periods=1).sum() / prices.index.map(
            lambda place: min(place + 1, LAST)
        )
        self.state.update((prices.tail(LAST).tolist(),))
        yield pd.DataFrame(
            {
                "seller": key[0],
                "expires": new["expired"],
                "price": averages.to_numpy()[len(old) :],
            }
        )

    def close(self) -> None:
        pass


def q6(tables: Tables) -> DataFrame:
    sold = _sold(tables, "seller").select("seller", "expired", "price")
    schema = "seller long, expires timestamp, price double"
    return sold.groupBy("seller").transformWithStateInPandas(LastTen(), schema, "Append", "None")


def q7(tables: Tables) -> DataFrame:
    bids = tables.bid.select("auction", "bidder", "price", "at").withWatermark("at", _IN_ORDER)
    # The least of these is the highest price, and of equal ones the earliest.
    rank = F.struct((-F.col("price")).alias("below"), "at", "auction", "bidder")
    best = bids.groupBy(F.window("at", _WINDOW)).agg(F.min(rank).alias("best"))
    return best.select(
        "best.auction",
        "window.start",
        "best.bidder",
        (-F.col("best.below")).alias("price"),
        "best.at",
    )


def q8(tables: Tables) -> DataFrame:
    auctions = tables.auction.select("seller", "opened").withWatermark("opened", _IN_ORDER)
    selling = auctions.groupBy(F.window("opened", _WINDOW), "seller").agg(F.count("*"))
    people = tables.person.select("id", "name", "joined").withWatermark("joined", _IN_ORDER)
    people = people.withColumn("joined_in", F.window("joined", _WINDOW))
    new = people.join(
        selling.select("seller", "window"), F.expr("id = seller AND joined_in = window")
    )
    return new.select("id", "window.start", "name")


def q11(tables: Tables) -> DataFrame:
    bids = tables.bid.select("bidder", "at").withWatermark("at", _IN_ORDER)
    sessions = bids.groupBy(F.session_window("at", _GAP).alias("session"), "bidder").count()
    return sessions.select("bidder", "session.start", "session.end", F.col("count").alias("num"))


def q12(tables: Tables) -> DataFrame:
    bids = tables.bid.select("bidder", "arrived").withWatermark("arrived", _IN_ORDER)
    counts = bids.groupBy(F.window("arrived", _WINDOW), "bidder").count()
    return counts.select("bidder", "window.start", F.col("count").alias("num"))


QUERIES: dict[str, Callable[[Tables], DataFrame]] = {
    query.__name__: query for query in (q3, q4, q5, q6, q7, q8, q11, q12)
}
