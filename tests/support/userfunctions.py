"""User-defined functions for the tests: the vectorised form the operator takes, and a plain form.

``spread`` keeps floats, ``weighted`` reads two columns and wraps around, ``trail`` depends on the
order of the tuples and has a state of odd widths.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from trailmark.windows.functions import State, UserFunction

Windows = npt.NDArray[np.int64]

_MASK = (1 << 64) - 1
_FACTOR = 31


def _signed(value: int) -> int:
    value &= _MASK
    return value - (1 << 64) if value >> 63 else value


# Greatest less least value of a float column; nulls and NaN are passed over.


def _spread_update(state: State, window: Windows, column: pa.Array) -> State:
    usable = pc.and_kleene(pc.is_valid(column), pc.invert(pc.is_nan(column)))
    keep = pc.fill_null(usable, False).to_numpy(zero_copy_only=False)
    # Adding 0.0 makes -0.0 and 0.0 one value: which of them NumPy keeps is not defined.
    values = column.cast(pa.float64()).to_numpy(zero_copy_only=False)[keep] + 0.0
    np.minimum.at(state["low"], window[keep], values)
    np.maximum.at(state["high"], window[keep], values)
    return state


def _spread_result(state: State) -> pa.Array:
    with np.errstate(invalid="ignore"):
        width = state["high"] - state["low"]
    return pa.array(width, mask=state["low"] > state["high"], from_pandas=False)


def spread(column: str) -> UserFunction:
    return UserFunction(
        columns=[column],
        state=pa.schema([("low", pa.float64()), ("high", pa.float64())]),
        result_type=pa.float64(),
        init=lambda n: {"low": np.full(n, np.inf), "high": np.full(n, -np.inf)},
        update=_spread_update,
        merge=lambda a, b: {
            "low": np.minimum(a["low"], b["low"]),
            "high": np.maximum(a["high"], b["high"]),
        },
        result=_spread_result,
        name="spread",
    )


class PlainSpread:
    def __init__(self, column: str) -> None:
        self._column = column
        self._low = float("inf")
        self._high = float("-inf")

    def add(self, row: dict[str, Any]) -> None:
        value = row[self._column]
        if value is not None and value == value:
            self._low = min(self._low, value + 0.0)
            self._high = max(self._high, value + 0.0)

    def merge(self, later: PlainSpread) -> None:
        self._low, self._high = min(self._low, later._low), max(self._high, later._high)

    def state(self) -> dict[str, Any]:
        return {"low": self._low, "high": self._high}

    def result(self) -> float | None:
        return None if self._low > self._high else self._high - self._low


# Sum of value times weight over tuples that have both, modulo 2**64, and how many they were.


def _weighted_update(state: State, window: Windows, value: pa.Array, weight: pa.Array) -> State:
    keep = pc.and_(pc.is_valid(value), pc.is_valid(weight)).to_numpy(zero_copy_only=False)
    factors = [
        pc.fill_null(c.cast(pa.int64()), 0).to_numpy(zero_copy_only=False) for c in (value, weight)
    ]
    product = (factors[0] * factors[1])[keep]
    total, count = state["total"].copy(), state["count"].copy()
    np.add.at(total, window[keep], product)
    np.add.at(count, window[keep], np.int32(1))
    return {"total": total, "count": count}


def weighted(value: str, weight: str) -> UserFunction:
    return UserFunction(
        columns=[value, weight],
        state=pa.schema([("total", pa.int64()), ("count", pa.int32())]),
        result_type=pa.int64(),
        init=lambda n: {"total": np.zeros(n, np.int64), "count": np.zeros(n, np.int32)},
        update=_weighted_update,
        merge=lambda a, b: {name: a[name] + b[name] for name in a},
        result=lambda state: pa.array(state["total"], mask=state["count"] == 0),
        name="weighted",
    )


class PlainWeighted:
    def __init__(self, value: str, weight: str) -> None:
        self._columns = value, weight
        self._total = 0
        self._count = 0

    def add(self, row: dict[str, Any]) -> None:
        value, weight = (row[name] for name in self._columns)
        if value is not None and weight is not None:
            self._total = _signed(self._total + value * weight)
            self._count += 1

    def merge(self, later: PlainWeighted) -> None:
        self._total = _signed(self._total + later._total)
        self._count += later._count

    def state(self) -> dict[str, Any]:
        return {"total": self._total, "count": self._count}

    def result(self) -> int | None:
        return self._total if self._count else None


# A polynomial digest of an integer column in the order of the tuples, nulls counting as 7.


def _trail_update(state: State, window: Windows, column: pa.Array) -> State:
    digests, lengths, tails = (state[name].copy() for name in ("digest", "length", "tail"))
    values = pc.fill_null(column.cast(pa.int64()), 7).to_pylist()
    for number, value in zip(window.tolist(), values, strict=True):
        digests[number] = (int(digests[number]) * _FACTOR + value) & _MASK
        lengths[number] += 1
        tails[number] = np.void((value & 0xFFFFFF).to_bytes(3, "little"))
    return {"tail": tails, "length": lengths, "digest": digests}


def _trail_merge(earlier: State, later: State) -> State:
    digests = [
        (int(a) * pow(_FACTOR, int(n), 1 << 64) + int(b)) & _MASK
        for a, b, n in zip(earlier["digest"], later["digest"], later["length"], strict=True)
    ]
    return {
        "tail": later["tail"],
        "length": earlier["length"] + later["length"],
        "digest": np.array(digests, dtype=np.uint64),
    }


def trail(column: str) -> UserFunction:
    return UserFunction(
        columns=[column],
        state=pa.schema([("tail", pa.binary(3)), ("length", pa.uint16()), ("digest", pa.uint64())]),
        result_type=pa.string(),
        init=lambda n: {
            "tail": np.zeros(n, "V3"),
            "length": np.zeros(n, np.uint16),
            "digest": np.zeros(n, np.uint64),
        },
        update=_trail_update,
        merge=_trail_merge,
        result=lambda state: pa.array(
            [f"{n}:{d:x}" for n, d in zip(state["length"], state["digest"], strict=True)],
            pa.string(),
        ),
        name="trail",
    )


class PlainTrail:
    def __init__(self, column: str) -> None:
        self._column = column
        self._tail = bytes(3)
        self._length = 0
        self._digest = 0

    def add(self, row: dict[str, Any]) -> None:
        value = 7 if row[self._column] is None else row[self._column]
        self._digest = (self._digest * _FACTOR + value) & _MASK
        self._length += 1
        self._tail = (value & 0xFFFFFF).to_bytes(3, "little")

    def merge(self, later: PlainTrail) -> None:
        factor = pow(_FACTOR, later._length, 1 << 64)
        self._digest = (self._digest * factor + later._digest) & _MASK
        self._length += later._length
        self._tail = later._tail

    def state(self) -> dict[str, Any]:
        return {"tail": self._tail, "length": self._length, "digest": self._digest}

    def result(self) -> str:
        return f"{self._length}:{self._digest:x}"


# The last three values of an integer column, all of them as text, and the lengths of these texts;
# nulls are passed over.


def _notes_update(state: State, window: Windows, column: pa.Array) -> State:
    recent, words, text, data = (state[name].to_pylist() for name in _NOTES)
    for number, value in zip(window.tolist(), column.cast(pa.int64()).to_pylist(), strict=True):
        if value is not None:
            recent[number] = [*recent[number], value][-3:]
            words[number].append(str(value))
            text[number] += f",{value}"
            data[number] += bytes([len(str(value))])
    # Whatever pa.array makes of lists is cast to what was declared.
    return {
        "recent": pa.chunked_array([pa.array(recent, pa.list_(pa.int64()))]),
        "words": words,
        "text": pa.array(text, pa.large_string()),
        "data": data,
    }


def _notes_merge(earlier: State, later: State) -> State:
    def both(name: str) -> Any:
        pairs = zip(earlier[name].to_pylist(), later[name].to_pylist(), strict=True)
        return [one + other for one, other in pairs]

    joined = {name: both(name) for name in _NOTES}
    return joined | {"recent": [each[-3:] for each in joined["recent"]]}


_NOTES = ("recent", "words", "text", "data")


def notes(column: str) -> UserFunction:
    return UserFunction(
        columns=[column],
        state=pa.schema(
            [
                ("text", pa.string()),
                ("recent", pa.list_(pa.int64())),
                ("words", pa.list_(pa.string())),
                ("data", pa.binary()),
            ]
        ),
        result_type=pa.string(),
        init=lambda n: {"recent": [[]] * n, "words": [[]] * n, "text": [""] * n, "data": [b""] * n},
        update=_notes_update,
        merge=_notes_merge,
        result=lambda state: pa.array(
            [
                f"{text}:{recent}:{len(words)}:{data.hex()}"
                for text, recent, words, data in zip(
                    *(state[name].to_pylist() for name in ("text", "recent", "words", "data")),
                    strict=True,
                )
            ],
            pa.string(),
        ),
        name="notes",
    )


class PlainNotes:
    def __init__(self, column: str) -> None:
        self._column = column
        self._values: list[int] = []

    def add(self, row: dict[str, Any]) -> None:
        if row[self._column] is not None:
            self._values.append(row[self._column])

    def merge(self, later: PlainNotes) -> None:
        self._values = self._values + later._values

    def state(self) -> dict[str, Any]:
        words = [str(each) for each in self._values]
        return {
            "text": "".join(f",{word}" for word in words),
            "recent": self._values[-3:],
            "words": words,
            "data": bytes(map(len, words)),
        }

    def result(self) -> str:
        state = self.state()
        return f"{state['text']}:{state['recent']}:{len(state['words'])}:{state['data'].hex()}"


#: The plain form of each function, by its name.
PLAIN: dict[str, Any] = {
    "spread": PlainSpread,
    "weighted": PlainWeighted,
    "trail": PlainTrail,
    "notes": PlainNotes,
}
