"""Networks that can be cut, in namespaces of their own: an S3 server behind a link, and hosts on a
switch that nobody else is on.

Packets go between the ends of these links only: what is in a namespace knows no other way.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

_REPOSITORY = Path(__file__).parents[2]
#: Addresses that are set aside for tests of networks.
_HERE, _THERE = "198.18.231.1", "198.18.231.2"
_HOSTS = "198.18.232"

#: Gives a process a /dev/shm that only it and what it starts can see, as on a host of its own.
_OWN_MEMORY = 'mount -t tmpfs -o size=256m tmpfs /dev/shm && exec "$@"'


@dataclass(frozen=True)
class Link:
    """One end of a link; ``where`` are the options of ip(8) that lead there."""

    name: str
    where: tuple[str, ...] = ()

    def cut(self) -> None:
        """What is sent is lost; nobody is told."""
        _ip(*self.where, "link", "set", self.name, "down")

    def mend(self) -> None:
        _ip(*self.where, "link", "set", self.name, "up")


@dataclass(frozen=True)
class Host:
    """Where processes run: an address, and the words before a command that is to run there."""

    address: str
    start: tuple[str, ...] = ()

    def driver_conf(self) -> dict[str, str]:
        """How a driver of Spark that runs there is reached."""
        return {"spark.driver.host": self.address, "spark.driver.bindAddress": self.address}


@dataclass(frozen=True)
class LinkedHost(Host):
    """A host with a /dev/shm of its own, on a switch."""

    link: Link = Link("")


def loopback_hosts(count: int) -> list[Host]:
    """Addresses of this machine. To Spark each is a host; memory and network are one."""
    return [Host(f"127.0.0.{number}") for number in range(1, count + 1)]


def own_memory() -> Host:
    """This machine, where each command that is started so has a /dev/shm of its own; skips the test
    where none may be made."""
    start = ("unshare", "--mount", "env", "TMPDIR=/dev/shm", "sh", "-c", _OWN_MEMORY, "sh")
    host = Host("127.0.0.1", start)
    _check_memory(host)
    return host


@contextmanager
def hosts_on_a_switch(count: int, *, joins: bool = False) -> Iterator[list[LinkedHost]]:
    """Hosts that reach each other and nobody else; skips the test where none may be made. With
    ``joins`` this process reaches them, too, by a link that is never cut.

    What runs there has to be ended before.
    """
    with ExitStack() as until_the_end:
        switch = until_the_end.enter_context(_namespace("switch"))
        inside = ("-n", switch)
        _try(*inside, "link", "add", "bridge", "type", "bridge")
        _ip(*inside, "link", "set", "bridge", "up")
        made = []
        for number in range(1, count + 1):
            name = until_the_end.enter_context(_namespace(str(number)))
            link = Link(f"port{number}", inside)
            address = f"{_HOSTS}.{number}"
            _ip(*inside, "link", "add", link.name, *_veth("eth0", name))
            _ip(*inside, "link", "set", link.name, "master", "bridge")
            _ip("-n", name, "address", "add", f"{address}/24", "dev", "eth0")
            for device in ("lo", "eth0"):
                _ip("-n", name, "link", "set", device, "up")
            link.mend()
            made.append(LinkedHost(address, _words(name, address), link))
        if joins:
            own = f"tm{os.getpid()}"
            _ip("link", "add", own, *_veth("own", switch))  # is gone with its other end
            _ip(*inside, "link", "set", "own", "master", "bridge", "up")
            _ip("address", "add", f"{_HOSTS}.254/24", "dev", own)
            _ip("link", "set", own, "up")
        _check_memory(made[0])
        yield made


def _words(namespace: str, address: str) -> tuple[str, ...]:
    environment = ("env", f"SPARK_LOCAL_IP={address}", "TMPDIR=/dev/shm")
    return ("ip", "netns", "exec", namespace, *environment, "sh", "-c", _OWN_MEMORY, "sh")


def _check_memory(host: Host) -> None:
    done = subprocess.run([*host.start, "true"], capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"no /dev/shm of its own can be made here: {done.stderr.strip()}")


def _veth(end: str, namespace: str) -> tuple[str, ...]:
    """For ``ip link add``: a pair of interfaces, of which one is in a namespace."""
    return ("type", "veth", "peer", "name", end, "netns", namespace)


@contextmanager
def _namespace(purpose: str) -> Iterator[str]:
    name = f"tm{os.getpid()}-{purpose}"
    _try("netns", "add", name)
    try:
        yield name
    finally:
        _ip("netns", "delete", name)  # and with it the ends of links that are in it


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
def s3_behind_a_link() -> Iterator[tuple[Link, str]]:
    """Runs a server, and gives the link and the endpoint; skips the test where no namespace may be
    made."""
    with _namespace("s3") as name:
        link = Link(f"tm{os.getpid()}")
        _try("link", "add", link.name, *_veth("s3", name))
        _ip("address", "add", f"{_HERE}/30", "dev", link.name)
        _ip("-n", name, "address", "add", f"{_THERE}/30", "dev", "s3")
        _ip("-n", name, "link", "set", "s3", "up")
        link.mend()
        with s3_on(Host(_THERE, ("ip", "netns", "exec", name))) as endpoint:
            yield link, endpoint


@contextmanager
def s3_on(host: Host) -> Iterator[str]:
    """Runs a server there; gives its endpoint."""
    with subprocess.Popen(
        [*host.start, sys.executable, "-m", __name__, host.address],
        cwd=_REPOSITORY,
        stdout=subprocess.PIPE,
        text=True,
    ) as server:
        try:
            assert server.stdout is not None
            yield f"http://{host.address}:{int(server.stdout.readline())}"
        finally:
            server.kill()


if __name__ == "__main__":
    from tests.support.object_store import serve_s3  # takes long to import

    serve_s3(sys.argv[1])
