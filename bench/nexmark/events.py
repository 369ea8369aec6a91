"""The events of NEXMark: people who join, auctions that open, and bids.

Written from the public descriptions: Tucker, Tufte, Papadimos and Maier, "NEXMark - A Benchmark for
Queries over Data Streams", and what Apache Beam and the NEXMark for Flink made of it. Of 50 events
one is a person, three are auctions and 46 are bids. Each kind is computed from the numbers of its
events, whole columns at a time, and is the same whenever it is asked for.

Only a few people are active and a few auctions are open at a time, and some are hot: half of the
bids are for the auction that began the last hundred, three quarters of them by one person in a
hundred, and that many auctions are of one seller. A few ids are ahead of what they name, as if
events had overtaken one another.

What differs from the descriptions: columns that no query reads are left out (descriptions, credit
cards, and so on); no two auctions of a seller expire in the same millisecond, so that the last ten
of them are the same ten everywhere; and a bid also has the time at which it arrived.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

PERSONS, AUCTIONS, BIDS = 1, 3, 46
#: Events until the same proportions come again.
EPOCH = PERSONS + AUCTIONS + BIDS
FIRST_PERSON = FIRST_AUCTION = 1000
FIRST_CATEGORY, CATEGORIES = 10, 5
ACTIVE_PEOPLE = 1000
OPEN_AUCTIONS = 100
#: Ids may be so far ahead of those that are there.
LEAD = 10
#: One person, and one auction, in so many is hot.
ONE_IN_HOT = 100
#: Whether a bid or an auction names somebody hot: all but one in so many do.
HOT_AUCTIONS, HOT_BIDDERS, HOT_SELLERS = 2, 4, 4
#: Bids arrive in bursts: every so many milliseconds of event time.
BURST_MS = 500
FIRST_MS = 1_700_000_000_000

_FIRST_NAMES = ["Ada", "Ben", "Cleo", "Dan", "Eve", "Finn", "Gus", "Hana", "Ida", "Jon", "Kim"]
_LAST_NAMES = ["Abbot", "Baker", "Cole", "Drake", "Ellis", "Frost", "Gray", "Hill", "Irwin"]
_CITIES = "Phoenix,Los Angeles,San Francisco,Boise,Portland,Bend,Redmond,Seattle,Kent,Cheyenne"
_STATES = ["AZ", "CA", "ID", "OR", "WA", "WY"]
_TIME = pa.timestamp("us", "UTC")

KINDS = ("person", "auction", "bid")

Numbers = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Stream:
    """``events`` events of all kinds, ``rate`` of them in a second of event time."""

    events: int
    rate: int = 10_000
    seed: int = 1

    @property
    def longest_ms(self) -> int:
        """No auction is open for longer: twice the average, and what keeps expiries apart."""
        return 2 * self._horizon_ms + 100

    @property
    def _horizon_ms(self) -> int:
        """How long it takes until as many auctions have opened as are open at a time."""
        return OPEN_AUCTIONS * EPOCH * 1000 // (AUCTIONS * self.rate)

    def table(self, kind: str) -> pa.Table:
        return {"person": self.persons, "auction": self.auctions, "bid": self.bids}[kind]()

    def numbers(self, kind: str) -> Numbers:
        """The numbers of the events of a kind, ascending: in every epoch people come first, then
        auctions, then bids."""
        firsts = {"person": 0, "auction": PERSONS, "bid": PERSONS + AUCTIONS}
        counts = {"person": PERSONS, "auction": AUCTIONS, "bid": BIDS}
        epochs = np.arange(-(-self.events // EPOCH), dtype=np.int64)[:, np.newaxis] * EPOCH
        numbers = (epochs + firsts[kind] + np.arange(counts[kind])).ravel()
        return numbers[numbers < self.events]

    def persons(self) -> pa.Table:
        numbers = self.numbers("person")
        draw = _Draws(self.seed, "person", len(numbers))
        return pa.table(
            {
                "id": FIRST_PERSON + _last_person(numbers),
                "name": draw.one_of([f"{a} {b}" for a in _FIRST_NAMES for b in _LAST_NAMES]),
                "city": draw.one_of(_CITIES.split(",")),
                "state": draw.one_of(_STATES),
                "joined": _times(self._ms(numbers)),
            }
        )

    def auctions(self) -> pa.Table:
        numbers = self.numbers("auction")
        draw = _Draws(self.seed, "auction", len(numbers))
        last = _last_person(numbers)
        seller = np.where(draw.is_hot(HOT_SELLERS), _hot(last), draw.active_person(last))
        opened = self._ms(numbers)
        expires = opened + 1 + draw.below(2 * self._horizon_ms)
        expires = _apart(seller, expires)
        assert not len(expires) or int((expires - opened).max()) <= self.longest_ms
        return pa.table(
            {
                "id": FIRST_AUCTION + _last_auction(numbers),
                "seller": FIRST_PERSON + seller,
                "category": FIRST_CATEGORY + draw.below(CATEGORIES),
                "opened": _times(opened),
                "expires": _times(expires),
            }
        )

    def bids(self) -> pa.Table:
        numbers = self.numbers("bid")
        draw = _Draws(self.seed, "bid", len(numbers))
        auction, person = _last_auction(numbers), _last_person(numbers)
        # The second of a hundred people, so that hot bidders are not the hot sellers.
        bidder = np.where(draw.is_hot(HOT_BIDDERS), _hot(person) + 1, draw.active_person(person))
        at = self._ms(numbers)
        return pa.table(
            {
                "auction": FIRST_AUCTION
                + np.where(draw.is_hot(HOT_AUCTIONS), _hot(auction), draw.open_auction(auction)),
                "bidder": FIRST_PERSON + bidder,
                "price": draw.price(),
                "at": _times(at),
                "arrived": _times((at // BURST_MS + 1) * BURST_MS),
            }
        )

    def _ms(self, numbers: Numbers) -> Numbers:
        return FIRST_MS + numbers * 1000 // self.rate


class _Draws:
    """Columns of random numbers, as long as the stream has events of a kind."""

    def __init__(self, seed: int, kind: str, count: int) -> None:
        self._rng = np.random.default_rng((seed, KINDS.index(kind)))
        self._count = count

    def below(self, limit: int | Numbers) -> Numbers:
        """Whole numbers from 0, below a limit or a limit of each."""
        return np.asarray(self._rng.random(self._count) * limit, dtype=np.int64)

    def is_hot(self, ratio: int) -> npt.NDArray[np.bool_]:
        return self.below(ratio) > 0

    def one_of(self, words: list[str]) -> pa.Array:
        return pa.array(words).take(pa.array(self.below(len(words))))

    def active_person(self, last: Numbers) -> Numbers:
        active = np.minimum(last + 1, ACTIVE_PEOPLE)
        return last + 1 - active + self.below(active + LEAD)

    def open_auction(self, last: Numbers) -> Numbers:
        first = np.maximum(last - OPEN_AUCTIONS, 0)
        return first + self.below(last - first + 1 + LEAD)

    def price(self) -> Numbers:
        """In cents; as many between 1 and 10 dollars as between 100,000 and a million."""
        return np.rint(100 * 10 ** (6 * self._rng.random(self._count))).astype(np.int64)


def _last_person(numbers: Numbers) -> Numbers:
    """The newest person when an event comes, counted from 0."""
    return numbers // EPOCH


def _last_auction(numbers: Numbers) -> Numbers:
    """The newest auction when an auction or a bid comes, counted from 0."""
    return numbers // EPOCH * AUCTIONS + np.minimum(numbers % EPOCH - PERSONS, AUCTIONS - 1)


def _hot(last: Numbers) -> Numbers:
    """The first of the last hundred."""
    return last // ONE_IN_HOT * ONE_IN_HOT


def _apart(seller: Numbers, expires: Numbers) -> Numbers:
    """Puts off auctions by the milliseconds that it takes until a seller has one at a time."""
    order = np.lexsort((expires, seller))
    sellers, ordered = seller[order], expires[order]
    # Of each seller x[i] = max(x[i - 1] + 1, expires[i]): a running maximum once i is taken off.
    # Sellers are lifted apart by more than all times together, so that one of them does not matter
    # to the next.
    place = np.arange(len(order))
    number = np.cumsum(np.diff(sellers, prepend=sellers[:1]) != 0)
    lift = number * (np.ptp(ordered) + 2 * len(order) + 1) if len(order) else number
    kept = np.maximum.accumulate(ordered - place + lift) + place - lift
    result = np.empty_like(expires)
    result[order] = kept
    return result


def _times(ms: Numbers) -> pa.Array:
    return pa.array(ms * 1000, _TIME)
