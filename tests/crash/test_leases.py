"""Two and three processes want one lease: they sleep, die and get no answers; clocks leap."""

from __future__ import annotations

import pytest

from tests.support.leasing import run_lease_case
from tests.support.seeds import seeds

_CASES = 600
_GROUP = 150

_ALL = seeds(_CASES)
_GROUPS = [_ALL[start : start + _GROUP] for start in range(0, len(_ALL), _GROUP)]


@pytest.mark.parametrize("group", _GROUPS, ids=lambda group: f"{group[0]}-{group[-1]}")
def test_no_two_have_a_lease_and_somebody_has_it_soon(group: range) -> None:
    naps = killed = handed_on = 0
    for seed in group:
        world = run_lease_case(seed)
        naps, killed = naps + world.naps, killed + world.fatal
        handed_on += len({token for token, *_ in world.held}) > 1
    if len(group) == _GROUP:
        assert naps > _GROUP
        assert killed > _GROUP / 2
        assert handed_on > _GROUP / 2
