"""Lists and maps of many keys at once, as a user's code changes them."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from trailmark.errors import SchemaError
from trailmark.operators.keyed.columns import (
    ListColumn,
    MapColumn,
    as_column,
    list_array,
    list_counts,
    map_array,
    map_parts,
)
from trailmark.operators.keyed.elements import Counts, States
from trailmark.state.table import StateTable

Numbers = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]


class Lists:
    """A list for each key."""

    def __init__(self, column: ListColumn, counts: Counts, flat: pa.Array) -> None:
        self._column = column
        self._counts = counts
        self._flat = flat
        self._is_changed = False

    def __len__(self) -> int:
        return len(self._counts)

    def array(self) -> pa.ListArray:
        """All lists."""
        return list_array(self._counts, self._flat, self._column.kind)

    def lengths(self) -> Numbers:
        """How many elements each list has."""
        return self._counts.copy()

    def append(self, of_rows: Numbers, values: Any) -> None:
        """Appends a value to the list of the key with this number, for every row."""
        of_rows = _numbers(of_rows, len(self))
        values = _elements(values, self._column.kind.value_type, len(of_rows), self._column.name)
        owners = np.concatenate([_owners(self._counts), of_rows])
        order = np.argsort(owners, kind="stable")
        flat = pa.concat_arrays([self._flat, values])
        added = np.bincount(of_rows, minlength=len(self))
        self._set(self._counts + added, flat.take(pa.array(order)))

    def keep_last(self, most: int) -> None:
        """Leaves no list more than its last so many elements."""
        kept = np.minimum(self._counts, most)
        ends = np.cumsum(self._counts)
        from_end = np.repeat(ends, self._counts) - np.arange(len(self._flat))
        is_kept = from_end <= np.repeat(kept, self._counts)
        self._set(kept, self._flat.filter(pa.array(is_kept)))

    def clear(self, which: Mask | None = None) -> None:
        """Empties the lists of these keys, or all."""
        is_cleared = mask_of(which, len(self))
        flat = self._flat.filter(pa.array(~np.repeat(is_cleared, self._counts)))
        self._set(np.where(is_cleared, 0, self._counts), flat)

    def assign(self, column: pa.Array) -> None:
        """Puts other lists in the place of all."""
        self._set(list_counts(column), column.flatten())

    def save(self, table: StateTable, states: States) -> None:
        """Writes the lists back if they were changed."""
        if self._is_changed:
            self._column.write_flat(table, states, self._counts, self._flat)

    def _set(self, counts: Counts, flat: pa.Array) -> None:
        self._counts, self._flat, self._is_changed = counts, flat, True


class Maps:
    """A map for each key of the state. A map's own keys keep the order in which they came."""

    def __init__(self, column: MapColumn, counts: Counts, keys: pa.Array, items: pa.Array) -> None:
        self._column = column
        self._counts = counts
        self._keys = keys
        self._items = items
        self._is_changed = False

    def __len__(self) -> int:
        return len(self._counts)

    def array(self) -> pa.MapArray:
        """All maps."""
        return map_array(self._counts, self._keys, self._items, self._column.kind)

    def lengths(self) -> Numbers:
        """How many entries each map has."""
        return self._counts.copy()

    def get(self, of_rows: Numbers, keys: Any) -> pa.Array:
        """The item of a map's key in the map of the key with this number, for every row; null
        where there is none."""
        of_rows, asked = self._asked(of_rows, keys)
        has, wants = self._numbered(of_rows, asked)
        order = np.argsort(has)
        place = np.searchsorted(has[order], wants)
        is_there = place < len(has)
        is_there[is_there] = has[order[place[is_there]]] == wants[is_there]
        found = np.zeros(len(wants), dtype=np.int64)
        found[is_there] = order[place[is_there]]
        return self._items.take(pa.array(found, mask=~is_there))

    def put(self, of_rows: Numbers, keys: Any, items: Any) -> None:
        """Puts an item under a map's key into the map of the key with this number, for every row;
        of several for the same place the last one stays."""
        of_rows, asked = self._asked(of_rows, keys)
        items = _elements(items, self._column.kind.item_type, len(of_rows), self._column.name)
        entry = np.concatenate(self._numbered(of_rows, asked))
        _, first = np.unique(entry, return_index=True)
        _, last = np.unique(entry[::-1], return_index=True)
        last = len(entry) - 1 - last
        owners = np.concatenate([_owners(self._counts), of_rows])[first]
        order = np.lexsort((first, owners))
        self._set(
            np.bincount(owners, minlength=len(self)),
            pa.concat_arrays([self._keys, asked]).take(pa.array(first[order])),
            pa.concat_arrays([self._items, items]).take(pa.array(last[order])),
        )

    def remove(self, of_rows: Numbers, keys: Any) -> None:
        """Takes a map's key out of the map of the key with this number, for every row."""
        of_rows, asked = self._asked(of_rows, keys)
        has, gone = self._numbered(of_rows, asked)
        self._keep(~np.isin(has, gone))

    def clear(self, which: Mask | None = None) -> None:
        """Empties the maps of these keys, or all."""
        self._keep(~np.repeat(mask_of(which, len(self)), self._counts))

    def assign(self, column: pa.Array) -> None:
        """Puts other maps in the place of all."""
        counts, keys, items = map_parts(column)
        self._set(np.zeros_like(counts), keys[:0], items[:0])
        self.put(_owners(counts), keys, items)

    def save(self, table: StateTable, states: States) -> None:
        """Writes the maps back if they were changed."""
        if self._is_changed:
            self._column.write_flat(table, states, self._counts, self._keys, self._items)

    def _asked(self, of_rows: Numbers, keys: Any) -> tuple[Numbers, pa.Array]:
        of_rows = _numbers(of_rows, len(self))
        asked = _elements(keys, self._column.kind.key_type, len(of_rows), self._column.name)
        if asked.null_count:
            raise SchemaError(
                "A map has no key that is null.", where=f"state[{self._column.name!r}]"
            )
        return of_rows, asked

    def _numbered(self, of_rows: Numbers, asked: pa.Array) -> tuple[Numbers, Numbers]:
        """A number for each entry there is and for each that is asked for: equal where both the
        key of the state and that of the map are."""
        encoded = pa.concat_arrays([self._keys, asked]).dictionary_encode()
        codes = encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64)
        owners = np.concatenate([_owners(self._counts), of_rows])
        entry = owners * max(1, len(encoded.dictionary)) + codes
        return entry[: len(self._keys)], entry[len(self._keys) :]

    def _keep(self, is_kept: Mask) -> None:
        counts = np.bincount(_owners(self._counts)[is_kept], minlength=len(self))
        mask = pa.array(is_kept)
        self._set(counts, self._keys.filter(mask), self._items.filter(mask))

    def _set(self, counts: Counts, keys: pa.Array, items: pa.Array) -> None:
        self._counts, self._keys, self._items, self._is_changed = counts, keys, items, True


def _owners(counts: Counts) -> Numbers:
    """The number of the key that each element belongs to."""
    return np.repeat(np.arange(len(counts), dtype=np.int64), counts)


def mask_of(which: Any, count: int) -> Mask:
    """Which keys are meant: a flag for each of them, or all."""
    if which is None:
        return np.ones(count, dtype=np.bool_)
    mask = np.asarray(which)
    if mask.shape != (count,) or mask.dtype != np.bool_:
        raise SchemaError(
            f"{count} flags are needed, one for each key; got {mask.dtype} of the shape "
            f"{mask.shape}.",
            where="which",
            fix="For example state['n'] >= 10.",
        )
    return mask


def _numbers(of_rows: Any, keys: int) -> Numbers:
    numbers = np.asarray(of_rows, dtype=np.int64)
    if numbers.ndim != 1 or (len(numbers) and not 0 <= numbers.min() <= numbers.max() < keys):
        raise SchemaError(
            f"Rows must be given the numbers of their keys, from 0 to {keys - 1}.",
            where="of_rows",
            fix="Use keys.of_rows, or a part of it.",
        )
    return numbers


def _elements(values: Any, kind: pa.DataType, count: int, name: str) -> pa.Array:
    where = f"state[{name!r}]"
    try:
        column = as_column(values, kind)
    except (pa.ArrowException, TypeError, ValueError) as error:
        raise SchemaError(f"The values are not {kind}: {error}", where=where) from error
    if len(column) != count:
        raise SchemaError(f"{count} values are needed, got {len(column)}.", where=where)
    return column
