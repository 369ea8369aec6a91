"""An S3 server behind a link that can be cut: in a network namespace of its own, on one end of a
pair of virtual interfaces."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.object_store import serve_s3

_REPOSITORY = Path(__file__).parents[2]
#: For nobody but the two ends: addresses that are set aside for tests of networks.
_HERE, _THERE = "198.18.231.1", "198.18.231.2"


class Link:
    """The way to the server."""

    def __init__(self, name: str, endpoint: str) -> None:
        self._name = name
        self.endpoint = endpoint

    def cut(self) -> None:
        """What is sent is lost; nobody is told."""
        _ip("link", "set", self._name, "down")

    def mend(self) -> None:
        _ip("link", "set", self._name, "up")


def _ip(*command: str) -> None:
    done = subprocess.run(["ip", *command], capture_output=True, text=True, check=False)
    if done.returncode:
        raise PermissionError(f"ip {' '.join(command)}: {done.stderr.strip()}")


def _try(*command: str) -> None:
    try:
        _ip(*command)
    except (FileNotFoundError, PermissionError) as error:
        pytest.skip(f"no network namespace can be made here: {error}")


@contextmanager
def s3_behind_a_link() -> Iterator[Link]:
    """Runs a server; skips the test where no namespace may be made."""
    name = f"tm{os.getpid()}"
    inside = ("netns", "exec", name, "ip")
    _try("netns", "add", name)
    try:
        _try("link", "add", name, "type", "veth", "peer", "name", "s3", "netns", name)
        _ip("address", "add", f"{_HERE}/30", "dev", name)
        _ip(*inside, "address", "add", f"{_THERE}/30", "dev", "s3")
        _ip(*inside, "link", "set", "s3", "up")
        _ip("link", "set", name, "up")
        with subprocess.Popen(
            ["ip", "netns", "exec", name, sys.executable, "-m", __name__],
            cwd=_REPOSITORY,
            stdout=subprocess.PIPE,
            text=True,
        ) as server:
            try:
                assert server.stdout is not None
                yield Link(name, f"http://{_THERE}:{int(server.stdout.readline())}")
            finally:
                server.kill()
    finally:
        _ip("netns", "delete", name)  # and with it the link


if __name__ == "__main__":
    serve_s3(_THERE)
