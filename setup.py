"""Compiles the kernel into a plain shared library, loaded with ctypes (see build_support)."""

from __future__ import annotations

import glob
import os
import shlex
import shutil
import subprocess
import sys

from setuptools import Extension, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_ext import build_ext

# Contraction into fused multiply-add would make sums differ between machines.
FLAGS = ["-std=gnu11", "-O3", "-fPIC", "-shared", "-ffp-contract=off", "-fno-strict-aliasing"]


def _compiler() -> list[str]:
    if "CC" in os.environ:
        return shlex.split(os.environ["CC"])
    if shutil.which("cc"):
        return ["cc"]
    return [sys.executable, "-m", "ziglang", "cc"]


class BuildKernel(build_ext):
    def get_ext_filename(self, fullname: str) -> str:
        return os.path.join(*fullname.split(".")) + ".so"

    def build_extension(self, ext: Extension) -> None:
        target = self.get_ext_fullpath(ext.name)
        os.makedirs(os.path.dirname(target), exist_ok=True)
        extra = shlex.split(os.environ.get("TRAILMARK_KERNEL_CFLAGS", ""))
        subprocess.run(
            [*_compiler(), *FLAGS, *extra, *ext.sources, "-o", target, "-lm"], check=True
        )


class PlatformWheel(bdist_wheel):
    """The library depends on the platform, not on the Python that loads it."""

    def get_tag(self) -> tuple[str, str, str]:
        _, _, platform = super().get_tag()
        return "py3", "none", platform


setup(
    ext_modules=[
        Extension(
            "trailmark.kernel.libkernel",
            sources=[*sorted(glob.glob("src/trailmark/kernel/*.c"))],
            depends=["src/trailmark/kernel/kernel.h"],
        )
    ],
    cmdclass={"build_ext": BuildKernel, "bdist_wheel": PlatformWheel},
)
