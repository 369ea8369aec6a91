"""An emulator of Azure's object store on loopback, for tests that talk to a real one."""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
import subprocess
import urllib.request
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from email.utils import formatdate
from pathlib import Path

import pytest

from build_support.azurite import PROGRAM

_ACCOUNT = "devstoreaccount1"
#: The emulator's own, the same everywhere.
_KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
_VERSION = "2021-12-02"


def why_there_is_none() -> str:
    """Why no emulator can be run here; empty if one can."""
    return "" if PROGRAM.exists() else "Azurite is not installed (make azurite installs it)"


@contextmanager
def azure_server(directory: Path) -> Iterator[str]:
    """Runs an emulator; gives its endpoint."""
    options = ["--blobPort", "0", "--disableTelemetry", "--skipApiVersionCheck", "--silent"]
    process = subprocess.Popen(
        [PROGRAM, *options, "--location", directory],
        cwd=directory,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        assert process.stdout is not None
        said = ""
        for line in process.stdout:
            said += line
            found = re.search(r"successfully listens on (http://[\d.]+:\d+)", line)
            if found is not None:
                yield f"{found[1]}/{_ACCOUNT}"
                return
        raise AssertionError(said)
    finally:
        process.kill()
        process.communicate()


def use_azure(endpoint: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Points the usual variables at an emulator."""
    variables = {
        "AZURE_STORAGE_ENDPOINT": endpoint,
        "AZURE_STORAGE_ACCOUNT_NAME": _ACCOUNT,
        "AZURE_STORAGE_ACCOUNT_KEY": _KEY,
        "AZURE_ALLOW_HTTP": "true",
    }
    for name, value in variables.items():
        monkeypatch.setenv(name, value)


def new_container(endpoint: str) -> str:
    """A URL in an empty container."""
    container = f"logs-{uuid.uuid4().hex}"
    date = formatdate(usegmt=True)
    headers = {"x-ms-date": date, "x-ms-version": _VERSION, "Content-Length": "0"}
    # What is signed: the method, eleven headers that are not there, ours, and what it is about.
    ours = f"x-ms-date:{date}\nx-ms-version:{_VERSION}"
    about = f"/{_ACCOUNT}/{_ACCOUNT}/{container}\nrestype:container"
    signed = f"PUT{12 * chr(10)}{ours}\n{about}"
    key = base64.b64decode(_KEY)
    signature = base64.b64encode(hmac.digest(key, signed.encode(), hashlib.sha256)).decode()
    headers["Authorization"] = f"SharedKey {_ACCOUNT}:{signature}"
    url = f"{endpoint}/{container}?restype=container"
    request = urllib.request.Request(url, method="PUT", headers=headers)
    with urllib.request.urlopen(request) as answer:
        assert answer.status == 201
    return f"az://{container}/some/prefix"
