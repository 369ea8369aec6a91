"""The state that readers rebuild is that of the oracle, at the end of every batch."""

from __future__ import annotations

import random

import pyarrow as pa
import pytest

from tests.support.engine import Query
from tests.support.joining import random_join
from tests.support.pairing import random_pairing
from tests.support.policies import random_policy
from tests.support.seeds import reported, seeds
from tests.support.shown_states import StatedQuery, trim
from tests.support.strategies import random_case
from trailmark.engine.commits import mark_committed
from trailmark.log import read_ports
from trailmark.streams.operator_state import open_state
from trailmark.testing.disk import SimulatedDisk

_PARTS = 4


@pytest.mark.parametrize("part", range(_PARTS))
def test_every_batch_of_a_random_case_gives_its_state_or_says_which_batch_does(part: int) -> None:
    refused, chosen = 0, seeds(160)[part::_PARTS]
    for seed in chosen:
        rng = random.Random(seed)
        case = random_case(rng)
        with reported(seed, case):
            stated = StatedQuery.of(case, random_policy(rng), rng.randint(1, 3))
            for batch in range(len(case.batches)):
                stated.run([batch])
                stated.check(stated.open().table(), batch)
                if rng.random() < 0.2:
                    stated.query.stop()
                if rng.random() < 0.3:
                    trim(stated.query, rng)
            refused += stated.check_all()
            stated.query.stop()
    assert refused > 0 or len(chosen) < 10, "some batches are out of reach"


def test_every_batch_of_an_operator_with_two_inputs_gives_its_state(pairing_kind: None) -> None:
    for seed in seeds(40):
        rng = random.Random(seed)
        case = random_pairing(rng)
        with reported(seed, case):
            buckets = rng.randint(1, 2)
            query = Query(case, SimulatedDisk(), random_policy(rng), buckets)
            oracles = [case.oracle() for _ in range(buckets)]
            for batch, rows in enumerate(case.batches):
                query.run(batch, case.split(rows, buckets))
                mark_committed(query.disk.storage(), batch, "a run")
                for number, oracle in enumerate(oracles):
                    case.expected(oracle, query.logs().input(number).read(batch))
                expected = {
                    key: state
                    for oracle in oracles
                    for (key, _), state in oracle.open_windows().items()
                }
                table = open_state(query.disk.storage()).table(batch)
                assert _pairings(query, table) == expected
            query.stop()


def test_every_batch_of_a_join_gives_its_state() -> None:
    for seed in seeds(20):
        rng = random.Random(seed)
        case = random_join(rng)
        with reported(seed, case):
            query = Query(case, SimulatedDisk(), random_policy(rng))
            oracle = case.oracle()
            for batch, rows in enumerate(case.batches):
                query.run(batch, [rows])
                mark_committed(query.disk.storage(), batch, "a run")
                case.expected(oracle, query.logs().input(0).read(batch))
                table = open_state(query.disk.storage(), case.code()).table(batch)
                assert _pieces(table) == {
                    key: (len(state["tuples"]), list(state["matched"]))
                    for (key, _), state in oracle.open_windows().items()
                }
            query.stop()


def _pieces(table: pa.Table) -> dict[tuple[int, int, int], tuple[int, list[bool]]]:
    """How many tuples wait in each piece, and which of them have matched."""
    found = {}
    for row in table.to_pylist():
        bits = int.from_bytes(row.get("matched") or b"", "little")
        flags = [bool(bits >> place & 1) for place in range(row["tuples"])]
        is_told = row.get("matched") is not None
        side = ("left", "right").index(row["side"])
        found[row["opened"], side, row["first"]] = (row["tuples"], flags if is_told else [])
    return found


def _pairings(query: Query, table: pa.Table) -> dict[tuple[int, ...], dict[str, int]]:
    """What is remembered of each key; the tuples that the state refers to are looked up."""
    found: dict[tuple[int, ...], dict[str, int]] = {}
    for row in table.to_pylist():
        segment = query.logs().input(row["bucket"]).read(row["batch"])
        tuples = read_ports(segment, query.case.operator().ports).tables[0]
        left = tuples.column("left")[row["row"]].as_py()
        assert (row["key"],) not in found
        found[row["key"],] = {"$opened": row["opened"], "left": left, "at": row["at"]}
    return found
