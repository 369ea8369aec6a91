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
    persistence,
    profile,
    targets,
)

_MODULES: tuple[ModuleType, ...] = (
    open_footprints,
    targets,
    budget,
    intensity,
    persistence,
    catch_up,
    growth,
    profile,
)

ALL: tuple[Experiment, ...] = tuple(cast(Experiment, module) for module in _MODULES)
