"""The experiments of `make bench`, in the order of the page."""

from __future__ import annotations

from types import ModuleType
from typing import cast

from bench.experiment import Experiment
from bench.experiments import (
    budget,
    catch_up,
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
)

ALL: tuple[Experiment, ...] = tuple(cast(Experiment, module) for module in _MODULES)
