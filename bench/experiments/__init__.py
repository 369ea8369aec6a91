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
    open_footprints,
    peer_recovery,
    peer_workloads,
    peers,
    persistence,
    profile,
    targets,
)

_MODULES: tuple[ModuleType, ...] = (
    peers,
    peer_workloads,
    peer_recovery,
    profile,
    growth,
    open_footprints,
    targets,
    budget,
    intensity,
    persistence,
    catch_up,
    crash_quality,
)

ALL: tuple[Experiment, ...] = tuple(cast(Experiment, module) for module in _MODULES)
#: Those of `make bench`: nine engines on four workloads take longer than all of it may.
QUICK: tuple[Experiment, ...] = tuple(one for one in ALL if one.NAME != peer_workloads.NAME)
