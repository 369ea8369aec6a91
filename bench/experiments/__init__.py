"""The experiments of `make bench-full`, in the order of the page."""

from __future__ import annotations

from types import ModuleType
from typing import cast

from bench.experiment import Experiment
from bench.experiments import (
    budget,
    catch_up,
    crash_quality,
    growth,
    intensity,
    nexmark,
    open_footprints,
    peer_recovery,
    peer_workloads,
    peers,
    persistence,
    profile,
    stalls,
    take_over,
    targets,
    window_joins,
)

_MODULES: tuple[ModuleType, ...] = (
    peers,
    peer_workloads,
    peer_recovery,
    nexmark,
    profile,
    growth,
    open_footprints,
    targets,
    budget,
    intensity,
    persistence,
    catch_up,
    crash_quality,
    stalls,
    take_over,
    window_joins,
)

ALL: tuple[Experiment, ...] = tuple(cast(Experiment, module) for module in _MODULES)
#: Those of `make bench`: nine engines on four workloads take longer than all of it may, joins that
#: make millions of pairs half as long, so do eight queries on three engines; failures and drivers
#: that start take long, too.
_LONG = (peer_workloads.NAME, window_joins.NAME, nexmark.NAME, stalls.NAME, take_over.NAME)
QUICK: tuple[Experiment, ...] = tuple(one for one in ALL if one.NAME not in _LONG)
