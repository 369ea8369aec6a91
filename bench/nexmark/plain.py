"""The queries in plain Python, a tuple at a time: slow and obvious, and what engines are held to.

This is also where the queries are defined. Times are milliseconds, windows are 10 seconds long
(q5: every 2 seconds) and are named by their start.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

import pyarrow as pa

WINDOW_MS = 10_000
SLIDE_MS = 2_000
#: A session ends when nothing has come for so long.
GAP_MS = 10_000
#: q3: an auction is the seller's if it opens at most so long before or after the seller has joined.
#: At 10,000 events a second nobody sells for longer than five seconds: the bound loses nothing.
REACH_MS = 10_000
#: q6: of so many auctions.
LAST = 10
CATEGORY = 10
STATES = ("OR", "ID", "CA")

Row = tuple[Any, ...]


class Person(NamedTuple):
    id: int
    name: str
    city: str
    state: str
    joined: int


class Auction(NamedTuple):
    id: int
    seller: int
    category: int
    opened: int
    expires: int


class Bid(NamedTuple):
    auction: int
    bidder: int
    price: int
    at: int
    arrived: int


@dataclass(frozen=True)
class Site:
    """All events, in order."""

    persons: list[Person]
    auctions: list[Auction]
    bids: list[Bid]


def site(persons: pa.Table, auctions: pa.Table, bids: pa.Table) -> Site:
    return Site(
        [Person(*row) for row in rows_of(persons)],
        [Auction(*row) for row in rows_of(auctions)],
        [Bid(*row) for row in rows_of(bids)],
    )


def rows_of(table: pa.Table) -> list[Row]:
    """Tuples of a table, with times in milliseconds."""
    columns = [
        column.cast(pa.timestamp("ms", column.type.tz)).cast(pa.int64())
        if pa.types.is_timestamp(column.type)
        else column
        for column in table.columns
    ]
    return list(zip(*(column.to_pylist() for column in columns), strict=True))


def q3(given: Site) -> Iterable[Row]:
    """Local item suggestion: who sells in category 10, in three states."""
    by_id = {person.id: person for person in given.persons if person.state in STATES}
    for auction in given.auctions:
        seller = by_id.get(auction.seller)
        if (
            seller is not None
            and auction.category == CATEGORY
            and abs(auction.opened - seller.joined) <= REACH_MS
        ):
            yield auction.id, seller.name, seller.city, seller.state


class Sold(NamedTuple):
    auction: Auction
    price: int


def _sold(given: Site) -> list[Sold]:
    """Auctions with their highest bid while they were open; those without a bid are left out."""
    by_id = {auction.id: auction for auction in given.auctions}
    highest: dict[int, int] = {}
    for bid in given.bids:
        auction = by_id.get(bid.auction)
        if auction is not None and auction.opened <= bid.at <= auction.expires:
            highest[bid.auction] = max(bid.price, highest.get(bid.auction, 0))
    return [Sold(by_id[id], price) for id, price in highest.items()]


def q4(given: Site) -> Iterable[Row]:
    """Average winning bid of each category, of the auctions that expire in a window."""
    prices = defaultdict(list)
    for auction, price in _sold(given):
        prices[auction.category, _start(auction.expires)].append(price)
    for (category, start), those in prices.items():
        yield category, start, sum(those) / len(those)


def q5(given: Site) -> Iterable[Row]:
    """Hot items: the auctions with the most bids in a sliding window."""
    counts: dict[int, dict[int, int]] = defaultdict(lambda: defaultdict(int))
    for bid in given.bids:
        newest = _start(bid.at, SLIDE_MS)
        for start in range(newest, newest - WINDOW_MS, -SLIDE_MS):
            counts[start][bid.auction] += 1
    for start, each in counts.items():
        most = max(each.values())
        for auction, count in each.items():
            if count == most:
                yield auction, start, count


def q6(given: Site) -> Iterable[Row]:
    """Average price of a seller's last ten auctions, whenever one of them has expired."""
    sold: dict[int, list[int]] = defaultdict(list)
    for auction, price in sorted(_sold(given), key=lambda each: each.auction.expires):
        last = sold[auction.seller]
        last.append(price)
        del last[:-LAST]
        yield auction.seller, auction.expires, sum(last) / len(last)


def q7(given: Site) -> Iterable[Row]:
    """The highest bid of a window; of equal ones the earliest, then by auction and bidder."""
    best: dict[int, tuple[Row, Bid]] = {}
    for bid in given.bids:
        rank = (-bid.price, bid.at, bid.auction, bid.bidder)
        start = _start(bid.at)
        if start not in best or rank < best[start][0]:
            best[start] = rank, bid
    for start, (_, bid) in best.items():
        yield bid.auction, start, bid.bidder, bid.price, bid.at


def q8(given: Site) -> Iterable[Row]:
    """New users: who joined and opened an auction in the same window."""
    selling = {(auction.seller, _start(auction.opened)) for auction in given.auctions}
    for person in given.persons:
        if (person.id, _start(person.joined)) in selling:
            yield person.id, _start(person.joined), person.name


def q11(given: Site) -> Iterable[Row]:
    """Bids of each user's sessions: until nothing has come for ten seconds."""
    sessions: dict[int, list[list[int]]] = defaultdict(list)
    for bid in given.bids:
        mine = sessions[bid.bidder]
        if mine and bid.at - mine[-1][1] <= GAP_MS:
            mine[-1][1] = bid.at
            mine[-1][2] += 1
        else:
            mine.append([bid.at, bid.at, 1])
    for bidder, mine in sessions.items():
        for start, last, count in mine:
            yield bidder, start, last + GAP_MS, count


def q12(given: Site) -> Iterable[Row]:
    """Bids of each user in windows of the times at which they arrived."""
    counts: dict[tuple[int, int], int] = defaultdict(int)
    for bid in given.bids:
        counts[bid.bidder, _start(bid.arrived)] += 1
    for (bidder, start), count in counts.items():
        yield bidder, start, count


def _start(ms: int, size: int = WINDOW_MS) -> int:
    return ms - ms % size


QUERIES: dict[str, Callable[[Site], Iterable[Row]]] = {
    query.__name__: query for query in (q3, q4, q5, q6, q7, q8, q11, q12)
}
