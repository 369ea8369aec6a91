"""The ledger against a plain dictionary of totals."""

from __future__ import annotations

import itertools
import random
from pathlib import Path

import numpy as np
import pytest

from trailmark.checkpoint.ledger import Ledger, Totals
from trailmark.errors import CacheFull
from trailmark.state.memory import PAGE, Memory, Region


class PlainLedger:
    """Totals by batch, searched from one end to the other."""

    def __init__(self) -> None:
        self.totals: dict[int, Totals] = {}

    def first_batch_within(self, now: Totals, records: int | None, inputs: int | None) -> int:
        """The batch after the newest if even that one leaves too much."""
        candidates = range(min(self.totals), max(self.totals) + 2)
        for batch in candidates:
            before, at = self.totals.get(batch - 1), self.totals.get(batch)
            is_in_extent = records is None or (
                before is not None and now.records - before.records <= records
            )
            is_in_replay = inputs is None or (at is not None and now.inputs - at.inputs <= inputs)
            if is_in_extent and is_in_replay:
                return batch
        return candidates[-1]


def _fill(ledger: Ledger, plain: PlainLedger, first: int, count: int, rng: random.Random) -> Totals:
    now = Totals(rng.randrange(50), rng.randrange(50), first)
    for batch in range(first, first + count):
        if batch == first:
            ledger.start(batch, now)
        else:
            now = Totals(
                now.records + rng.choice((0, 0, 1, 5, 40)),
                now.inputs + rng.choice((0, 0, 1, 5, 40)),
                rng.randint(now.needs, batch),
            )
            ledger.append(batch, now)
        plain.totals[batch] = now
    return now


def _assert_same(ledger: Ledger, plain: PlainLedger) -> None:
    assert ledger.first == min(plain.totals)
    assert len(ledger) == len(plain.totals)
    assert {batch: ledger.at(batch) for batch in plain.totals} == plain.totals


def test_totals_are_those_that_were_given() -> None:
    ledger, plain = Ledger(Memory()), PlainLedger()
    _fill(ledger, plain, 3, 20, random.Random(1))
    _assert_same(ledger, plain)


def test_batches_before_the_ledger_are_not_known() -> None:
    ledger = Ledger(Memory())
    ledger.start(5, Totals(10, 20, 3))
    assert ledger.at(4) is None
    assert ledger.at(5) == Totals(10, 20, 3)


def test_large_totals_are_kept_exactly() -> None:
    ledger = Ledger(Memory())
    huge = Totals(2**62 + 1, 2**61 + 3, 2**60 + 7)
    ledger.start(2**60, huge)
    assert ledger.at(2**60) == huge


def test_starting_anew_forgets_everything() -> None:
    ledger, plain = Ledger(Memory()), PlainLedger()
    _fill(ledger, plain, 0, 500, random.Random(2))
    ledger.forget_before(400)
    ledger.start(9, Totals(1, 2, 3))
    assert (ledger.first, len(ledger)) == (9, 1)
    assert ledger.at(9) == Totals(1, 2, 3)


@pytest.mark.parametrize("seed", range(20))
def test_the_oldest_batch_within_the_targets_is_what_a_search_finds(seed: int) -> None:
    rng = random.Random(seed)
    ledger, plain = Ledger(Memory()), PlainLedger()
    newest = _fill(ledger, plain, rng.choice((0, 7)), rng.randint(1, 30), rng)
    for _ in range(60):
        now = Totals(newest.records + rng.randrange(30), newest.inputs + rng.randrange(30), 0)
        records = rng.choice((None, 0, 1, rng.randrange(200)))
        inputs = rng.choice((None, 0, 1, rng.randrange(200)))
        found = ledger.first_batch_within(now, records, inputs)
        assert found == plain.first_batch_within(now, records, inputs), (now, records, inputs)


@pytest.mark.parametrize("seed", range(10))
def test_many_batches_are_looked_up_at_once_as_one_by_one(seed: int) -> None:
    rng = random.Random(seed)
    ledger, plain = Ledger(Memory()), PlainLedger()
    first = rng.choice((-1, 4, 1_000))
    newest = _fill(ledger, plain, first, 40, rng)
    now = Totals(newest.records + 7, newest.inputs + 11, 0)
    batches = [*sorted(rng.sample(range(first + 1, first + 40), 12)), first + 40]
    records, inputs = ledger.columns_at(np.array(batches), now)
    totals = plain.totals | {first + 40: now}
    assert records.tolist() == [now.records - totals[batch - 1].records for batch in batches]
    assert inputs.tolist() == [now.inputs - totals[batch].inputs for batch in batches]


def test_without_targets_every_batch_will_do() -> None:
    ledger = Ledger(Memory())
    ledger.start(4, Totals(10, 10, 0))
    ledger.append(5, Totals(1_000, 1_000, 0))
    assert ledger.first_batch_within(Totals(10_000, 10_000, 0), None, None) == 4


@pytest.mark.parametrize("seed", range(5))
def test_forgetting_and_growing_keep_the_rest_as_it_was(seed: int) -> None:
    rng = random.Random(seed)
    ledger, plain = Ledger(Memory()), PlainLedger()
    now = _fill(ledger, plain, 0, 2, rng)
    for batch in range(2, 3_000):
        now = Totals(now.records + rng.randrange(9), now.inputs + rng.randrange(9), batch // 2)
        ledger.append(batch, now)
        plain.totals[batch] = now
        if rng.random() < 0.1:
            before = rng.randint(ledger.first, batch)
            ledger.forget_before(before)
            plain.totals = {b: t for b, t in plain.totals.items() if b >= before}
        if batch % 97 == 0:
            _assert_same(ledger, plain)
    _assert_same(ledger, plain)


def test_the_newest_batch_is_never_forgotten() -> None:
    ledger, plain = Ledger(Memory()), PlainLedger()
    _fill(ledger, plain, 0, 10, random.Random(3))
    ledger.forget_before(1_000)
    assert (ledger.first, len(ledger)) == (9, 1)
    assert ledger.at(9) == plain.totals[9]


def test_forgetting_what_is_forgotten_changes_nothing() -> None:
    ledger, plain = Ledger(Memory()), PlainLedger()
    _fill(ledger, plain, 5, 10, random.Random(4))
    ledger.forget_before(2)
    ledger.forget_before(-10)
    _assert_same(ledger, plain)


def test_a_hundred_thousand_batches_stay_within_reach() -> None:
    ledger = Ledger(Memory())
    ledger.start(0, Totals(0, 0, 0))
    for batch in range(1, 100_000):
        ledger.append(batch, Totals(2 * batch, 3 * batch, batch))
    assert len(ledger) == 100_000
    assert ledger.at(77_777) == Totals(155_554, 233_331, 77_777)
    assert ledger.first_batch_within(Totals(200_000, 300_000, 0), 1_000, None) == 99_501
    assert ledger.first_batch_within(Totals(200_000, 300_000, 0), None, 3_000) == 99_000


def test_a_ledger_that_forgets_as_it_goes_on_takes_no_more_room() -> None:
    memory = Memory()
    ledger = Ledger(memory)
    ledger.start(0, Totals(0, 0, 0))
    sizes = []
    for batch in range(1, 20_000):
        ledger.append(batch, Totals(batch, batch, batch))
        ledger.forget_before(batch - 50)
        sizes.append(memory.size)
    assert len(ledger) == 51
    assert max(sizes) <= 8 * PAGE
    assert sizes[-1] == sizes[1_000]


def test_a_ledger_in_files_is_found_again(tmp_path: Path) -> None:
    plain = PlainLedger()
    memory = Memory(tmp_path)
    ledger = Ledger(memory)
    _fill(ledger, plain, 3, 2_000, random.Random(5))
    ledger.forget_before(700)
    plain.totals = {b: t for b, t in plain.totals.items() if b >= 700}
    memory.close()
    again = Ledger(Memory(tmp_path))
    _assert_same(again, plain)
    again.append(2_003, Totals(10**6, 10**6, 0))
    assert again.at(2_003) == Totals(10**6, 10**6, 0)


def test_a_ledger_that_cannot_grow_says_so_and_keeps_what_it_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = PlainLedger()
    ledger = Ledger(Memory(tmp_path))
    _fill(ledger, plain, 0, 100, random.Random(6))

    def refuse(region: Region, path: Path, size: int) -> None:
        raise CacheFull(f"No room for {size} bytes.", where=str(path))

    monkeypatch.setattr(Region, "_allocate", refuse)

    def append_without_end() -> None:
        for batch in itertools.count(100):
            ledger.append(batch, Totals(10**6, 10**6, batch))
            plain.totals[batch] = Totals(10**6, 10**6, batch)

    with pytest.raises(CacheFull):
        append_without_end()
    assert len(ledger) > 100
    _assert_same(ledger, plain)
