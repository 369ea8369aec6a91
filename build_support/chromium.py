"""Gets a browser for the tests of the page, where that may be: as root, from Debian's packages.

Where there is none and none can be had, the tests that need it are skipped, and say so.
"""

from __future__ import annotations

import os
import shutil
import subprocess

_PROGRAMS = ("chromium", "chromedriver")
_PACKAGES = ("chromium", "chromium-driver")
_SECONDS = 600


def why_not() -> str:
    """Installs what is missing; returns why that cannot be, or nothing if all is there."""
    if all(map(shutil.which, _PROGRAMS)):
        return ""
    if os.geteuid() != 0:
        return "only root may install it"
    if shutil.which("apt-get") is None:
        return "there is no apt-get"
    quiet = ["apt-get", "-qq", "-o", "Dpkg::Use-Pty=0"]
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    for more in (["update"], ["install", "--yes", "--no-install-recommends", *_PACKAGES]):
        try:
            done = subprocess.run(
                [*quiet, *more],
                check=False,
                capture_output=True,
                text=True,
                timeout=_SECONDS,
                env=environment,
            )
        except subprocess.TimeoutExpired:
            return f"apt-get {more[0]} takes too long"
        if done.returncode != 0:
            reason = (done.stderr.strip().splitlines() or ["it failed"])[-1]
            return f"apt-get {more[0]}: {reason}"
    return ""


if __name__ == "__main__":
    reason = why_not()
    if reason:
        print(f"no Chromium, so the page is not tested in a browser: {reason}")
