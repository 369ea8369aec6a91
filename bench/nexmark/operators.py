"""What Trailmark has no operator for, as users write their own: all keys of a batch at once."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from bench.nexmark.plain import GAP_MS, LAST

Numbers = npt.NDArray[np.int64]
_TIME = pa.timestamp("us", "UTC")


def _numbers(column: Any) -> Numbers:
    """A column of whole numbers, or of times in microseconds."""
    numbers: Numbers = column.cast(pa.int64()).to_numpy(zero_copy_only=False)
    return numbers


def _due(microseconds: Numbers) -> npt.NDArray[np.datetime64]:
    return microseconds.astype("M8[us]")


class Hottest:
    """q5: of the auctions of a window those with the most bids, once a later window has come."""

    state: ClassVar[dict[str, pa.DataType]] = {
        "most": pa.int64(),
        "auctions": pa.list_(pa.int64()),
    }

    def process(self, keys: Any, rows: pa.RecordBatch, state: Any) -> None:
        counts, before = _numbers(rows["num"]), state["most"].copy()
        np.maximum.at(state["most"], keys.of_rows, counts)
        state["auctions"].clear(state["most"] > before)
        are_most = counts == state["most"][keys.of_rows]
        state["auctions"].append(keys.of_rows[are_most], rows["auction"].filter(pa.array(are_most)))
        state.event_timer = _due(_numbers(keys["start"]) + 1000)

    def on_event_timer(self, keys: Any, due: Any, state: Any) -> pa.Table:
        owners = np.repeat(np.arange(len(keys)), state["auctions"].lengths())
        state.remove(np.ones(len(keys), dtype=bool))
        return pa.table(
            {
                "auction": state["auctions"].array().flatten(),
                "start": keys["start"].take(pa.array(owners)),
                "num": state["most"][owners],
            }
        )


class LastTen:
    """q6: the average of a seller's last ten prices, for each new one. Rows come in order."""

    state: ClassVar[dict[str, pa.DataType]] = {"prices": pa.list_(pa.int64())}

    def process(self, keys: Any, rows: pa.RecordBatch, state: Any) -> pa.Table:
        state["prices"].append(keys.of_rows, rows["price"])
        lengths, added = state["prices"].lengths(), keys.counts()
        # Of each key the old prices, then the new ones; sums up to each place.
        sums = np.concatenate(([0], np.cumsum(_numbers(state["prices"].array().flatten()))))
        ends = np.cumsum(lengths)
        owners = np.repeat(np.arange(len(keys)), added)
        nth = np.arange(len(owners)) - np.repeat(np.cumsum(added) - added, added)
        last = (ends - added)[owners] + nth + 1
        first = np.maximum(last - LAST, (ends - lengths)[owners])
        state["prices"].keep_last(LAST)
        by_key = pa.array(np.argsort(keys.of_rows, kind="stable"))
        return pa.table(
            {
                "seller": keys["seller"].take(pa.array(owners)),
                "expires": rows["expires"].take(by_key),
                "price": (sums[last] - sums[first]) / (last - first),
            }
        )


class Highest:
    """q7: the highest bid of each key, and of equal ones the earliest. A key has a column ``start``
    and is over ``after_ms`` later."""

    _BID = ("price", "at", "auction", "bidder")
    state: ClassVar[dict[str, pa.DataType]] = dict.fromkeys(_BID, pa.int64())
    initial: ClassVar[dict[str, int]] = {"price": -1}

    def __init__(self, after_ms: int) -> None:
        self._after_us = after_ms * 1000

    def process(self, keys: Any, rows: pa.RecordBatch, state: Any) -> None:
        prices, highest = _numbers(rows["price"]), state["price"].copy()
        np.maximum.at(highest, keys.of_rows, prices)
        # Few are left that have to be sorted.
        rows_left = np.flatnonzero(prices == highest[keys.of_rows])
        owners = np.concatenate((np.arange(len(keys)), keys.of_rows[rows_left]))
        price, at, auction, bidder = (
            np.concatenate((state[name], _numbers(rows[name])[rows_left])) for name in self._BID
        )
        order = np.lexsort((bidder, auction, at, -price, owners))
        best = order[np.searchsorted(owners[order], np.arange(len(keys)))]
        for name, column in zip(self._BID, (price, at, auction, bidder), strict=True):
            state[name] = column[best]
        state.event_timer = _due(_numbers(keys["start"]) + self._after_us)

    def on_event_timer(self, keys: Any, due: Any, state: Any) -> pa.Table:
        state.remove(np.ones(len(keys), dtype=bool))
        return pa.table(
            {
                "auction": state["auction"],
                "start": keys["start"],
                "bidder": state["bidder"],
                "price": state["price"],
                "at": pa.array(state["at"], _TIME),
            }
        )


class Sessions:
    """q11: the bids of each bidder until none has come for a while."""

    state: ClassVar[dict[str, pa.DataType]] = dict.fromkeys(("first", "last", "bids"), pa.int64())

    def process(self, keys: Any, rows: pa.RecordBatch, state: Any) -> pa.Table:
        gap = GAP_MS * 1000
        at = _numbers(rows["at"])
        order = np.lexsort((at, keys.of_rows))
        # What a key has open stands before its bids, as if it were one more of them.
        old = np.flatnonzero(state["bids"])
        owners = np.concatenate((old, keys.of_rows[order]))
        begins = np.concatenate((state["first"][old], at[order]))
        ends = np.concatenate((state["last"][old], at[order]))
        bids = np.concatenate((state["bids"][old], np.ones(len(at), dtype=np.int64)))
        order = np.argsort(owners, kind="stable")
        owners, begins, ends, bids = (each[order] for each in (owners, begins, ends, bids))
        is_new = np.ones(len(owners), dtype=bool)
        is_new[1:] = (owners[1:] != owners[:-1]) | (begins[1:] - ends[:-1] > gap)
        starts = np.flatnonzero(is_new)
        lasts = np.append(starts[1:], len(owners)) - 1
        owners, begins, ends = owners[lasts], begins[starts], ends[lasts]
        bids = np.add.reduceat(bids, starts)
        # All but the last session of a key are over.
        is_open = np.append(owners[1:] != owners[:-1], True)
        state["first"], state["last"] = begins[is_open], ends[is_open]
        state["bids"] = bids[is_open]
        state.event_timer = _due(state["last"] + gap)
        over = ~is_open
        return self._rows(keys, owners[over], begins[over], ends[over], bids[over])

    def on_event_timer(self, keys: Any, due: Any, state: Any) -> pa.Table:
        every = np.arange(len(keys))
        state.remove(np.ones(len(keys), dtype=bool))
        return self._rows(keys, every, state["first"], state["last"], state["bids"])

    def _rows(
        self, keys: Any, owners: Numbers, begins: Numbers, ends: Numbers, bids: Numbers
    ) -> pa.Table:
        return pa.table(
            {
                "bidder": keys["bidder"].take(pa.array(owners)),
                "start": pa.array(begins, _TIME),
                "end": pa.array(ends + GAP_MS * 1000, _TIME),
                "num": bids,
            }
        )
