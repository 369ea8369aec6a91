"""The build backend: setuptools, plus a C compiler when the machine has none.

The kernel is plain C that needs no Python headers. Where ``cc`` is missing, the build asks pip for
``ziglang``, a C compiler shipped as a wheel: installing from source works wherever pip does.
"""

from __future__ import annotations

import os
import shutil
from typing import Any

from setuptools import build_meta as _setuptools
from setuptools.build_meta import (  # noqa: F401  (the hooks pip calls)
    build_editable,
    build_sdist,
    build_wheel,
    get_requires_for_build_sdist,
    prepare_metadata_for_build_editable,
    prepare_metadata_for_build_wheel,
)


def _compiler_requirement() -> list[str]:
    has_compiler = "CC" in os.environ or shutil.which("cc") is not None
    return [] if has_compiler else ["ziglang"]


def get_requires_for_build_wheel(config_settings: Any = None) -> list[str]:
    return _setuptools.get_requires_for_build_wheel(config_settings) + _compiler_requirement()


def get_requires_for_build_editable(config_settings: Any = None) -> list[str]:
    return _setuptools.get_requires_for_build_editable(config_settings) + _compiler_requirement()
