"""Gets a browser for the tests of the page, where that may be: as root, from Debian's packages.

Where there is none and none can be had, the tests that need it are skipped, and say so.
"""

from __future__ import annotations

import os
import shutil

from build_support.fetching import why_it_fails

_PROGRAMS = ("chromium", "chromedriver")
_PACKAGES = ("chromium", "chromium-driver")


def why_not() -> str:
    """Installs what is missing; returns why that cannot be, or nothing if all is there."""
    if all(map(shutil.which, _PROGRAMS)):
        return ""
    if os.geteuid() != 0:
        return "only root may install it"
    if shutil.which("apt-get") is None:
        return "there is no apt-get"
    quiet = ["apt-get", "-qq", "-o", "Dpkg::Use-Pty=0"]
    for more in (["update"], ["install", "--yes", "--no-install-recommends", *_PACKAGES]):
        silent = {"DEBIAN_FRONTEND": "noninteractive"}
        failure = why_it_fails([*quiet, *more], environment=silent)
        if failure:
            return f"apt-get {more[0]}: {failure}"
    return ""


if __name__ == "__main__":
    reason = why_not()
    if reason:
        print(f"no Chromium, so the page is not tested in a browser: {reason}")
