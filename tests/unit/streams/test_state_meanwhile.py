"""The state of an operator whose logs are damaged, or change while it is read."""

from __future__ import annotations

import random
from functools import partial

import pytest

from tests.support.engine import Query
from tests.support.harm import PLACES, flip_in, segment_path
from tests.support.meddling import Meddled
from tests.support.orders import count_case, random_orders
from tests.support.shown_states import POLICY, StatedQuery, offered, stated_query
from trailmark.checkpoint.policy import Continuous, NoCheckpoint
from trailmark.errors import (
    DamagedSegment,
    MissingInput,
)
from trailmark.log import Storage
from trailmark.records import Stream
from trailmark.streams.operator_state import open_state


@pytest.mark.parametrize("place", PLACES)
def test_it_goes_around_a_damaged_output_segment(place: str) -> None:
    whole = stated_query()
    for batch in range(len(whole.states)):
        damaged = StatedQuery(Query(whole.case, whole.disk.copy(), POLICY, 2), whole.states)
        flip_in(damaged.disk, Stream.OUTPUT, batch, PLACES[place], bucket=1)
        for asked in (batch, len(whole.states) - 1):
            damaged.check(damaged.open().table(asked), asked)


def test_damage_to_the_input_that_is_needed_is_told() -> None:
    case = count_case(random_orders(random.Random(5), batches=6, rows=20, items=6), size=4)
    stated = StatedQuery.of(case, NoCheckpoint()).run()
    stated.query.stop()
    path = flip_in(stated.disk, Stream.INPUT, 3)
    assert path == segment_path(Stream.INPUT, 3)
    stated.check(stated.open().table(2), 2)
    with pytest.raises(DamagedSegment):
        stated.open().table(5)


@pytest.mark.parametrize("asked", [None, 6])
def test_a_query_that_goes_on_and_trims_meanwhile_is_read_right_or_refused(
    asked: int | None,
) -> None:
    case = count_case(random_orders(random.Random(7), batches=14, rows=20, items=9), size=5)
    looks, outcomes = 0, set()
    while True:
        stated = StatedQuery.of(case, Continuous(q=12, u=25), 2).run(range(8))
        storage = Meddled(stated.disk, looks, partial(_go_on, stated))
        outcomes.add(_outcome(stated, storage, asked))
        stated.query.stop()
        if storage.looks <= looks:
            break
        looks += 1
    assert looks > 20
    assert outcomes == ({7, 13} if asked is None else {6, "refused"})


def _go_on(stated: StatedQuery) -> None:
    stated.run(range(8, 14))
    for bucket in stated.query.open():
        bucket.trim()


def _outcome(stated: StatedQuery, storage: Storage, asked: int | None) -> int | str:
    """The batch that the state is as of, which has to be that of the oracle."""
    try:
        table = open_state(storage).table(asked)
    except MissingInput as error:
        if asked in offered(error):
            raise
        return "refused"
    (batch,) = set(table["batch"].to_pylist())
    stated.check(table, batch)
    return int(batch)
