"""The experiments of `make bench`, in the order of the page."""

from __future__ import annotations

from types import ModuleType
from typing import cast

from bench.experiment import Experiment
from bench.experiments import peer_recovery, peers

_MODULES: tuple[ModuleType, ...] = (peers, peer_recovery)

ALL: tuple[Experiment, ...] = tuple(cast(Experiment, module) for module in _MODULES)
