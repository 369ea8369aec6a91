"""A real browser without a window, driven over WebDriver's own HTTP: nothing but `chromedriver`."""

from __future__ import annotations

import base64
import http.client
import json
import os
import re
import shutil
import subprocess
import time
from pathlib import Path
from typing import Any

#: Far more than anything takes here, on a busy machine, too.
PATIENCE_S = 60.0
_FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
)


def why_there_is_none() -> str:
    """Why no browser can be driven here; empty if one can."""
    for name in ("chromium", "chromedriver"):
        if shutil.which(name) is None:
            return f"{name} is not installed (as root, make chromium installs it)"
    return ""


class Browser:
    """One window, in a profile of its own."""

    def __init__(self, profile: Path) -> None:
        self._driver = subprocess.Popen(
            ["chromedriver", "--port=0"],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self._port = _port_of(self._driver)
        options = {
            "args": [*_FLAGS, f"--user-data-dir={profile}"],
            "binary": shutil.which("chromium"),
        }
        given = {"browserName": "chrome", "goog:chromeOptions": options}
        logs = {"goog:loggingPrefs": {"browser": "ALL"}}
        made = self._ask("POST", "/session", {"capabilities": {"alwaysMatch": given | logs}})
        self._session = f"/session/{made['sessionId']}"

    def open(self, url: str) -> None:
        """Goes to a page."""
        self._ask("POST", f"{self._session}/url", {"url": url})

    def run(self, script: str, *arguments: object) -> Any:
        """What a script returns; a promise is waited for."""
        body = {"script": script, "args": list(arguments)}
        return self._ask("POST", f"{self._session}/execute/sync", body)

    def wait_for(self, script: str, *arguments: object) -> Any:
        """The first value of an expression that is something."""
        until = time.monotonic() + PATIENCE_S
        while not (found := self.run(f"return {script}", *arguments)):
            assert time.monotonic() < until, f"never: {script}\n{self.text()[:3000]}"
            time.sleep(0.05)
        return found

    def text(self) -> str:
        """What can be read."""
        return str(self.run("return document.body ? document.body.innerText : ''"))

    def wait_for_text(self, pattern: str) -> str:
        """Waits until the page says something; returns what it said."""
        until = time.monotonic() + PATIENCE_S
        while (found := re.search(pattern, self.text())) is None:
            assert time.monotonic() < until, f"never: {pattern}\n{self.text()[:3000]}"
            time.sleep(0.05)
        return found[0]

    def keys(self, keys: str) -> None:
        """Presses keys, as WebDriver names them, wherever the focus is."""
        steps = [{"type": kind, "value": key} for key in keys for kind in ("keyDown", "keyUp")]
        actions = [{"type": "key", "id": "keyboard", "actions": steps}]
        self._ask("POST", f"{self._session}/actions", {"actions": actions})

    def devtools(self, command: str, **given: object) -> Any:
        """A command of Chromium's own."""
        body = {"cmd": command, "params": given}
        return self._ask("POST", f"{self._session}/goog/cdp/execute", body)

    def size(self, width: int, height: int, scale: float = 1.0) -> None:
        """What the page sees as its window."""
        metrics = {"width": width, "height": height, "deviceScaleFactor": scale}
        self.devtools("Emulation.setDeviceMetricsOverride", mobile=width < 600, **metrics)

    def scheme(self, name: str) -> None:
        """Light or dark."""
        features = [{"name": "prefers-color-scheme", "value": name}]
        self.devtools("Emulation.setEmulatedMedia", media="", features=features)

    def picture(self) -> bytes:
        """A PNG of what is in the window."""
        return base64.b64decode(self._ask("GET", f"{self._session}/screenshot"))

    def complaints(self) -> list[str]:
        """Errors that the page has met since it was asked last: scripts, rules, files."""
        found = self._ask("POST", f"{self._session}/se/log", {"type": "browser"})
        return [each["message"] for each in found if each["level"] == "SEVERE"]

    def close(self) -> None:
        """Ends window and driver."""
        self._ask("DELETE", self._session)
        self._driver.terminate()
        self._driver.wait(PATIENCE_S)
        assert self._driver.stdout is not None
        self._driver.stdout.close()

    def _ask(self, method: str, path: str, body: object = None) -> Any:
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=PATIENCE_S * 2)
        try:
            text = None if body is None else json.dumps(body)
            connection.request(method, path, text, {"Content-Type": "application/json"})
            answer = connection.getresponse()
            value = json.loads(answer.read())["value"]
        finally:
            connection.close()
        assert answer.status == 200, value
        return value


def _port_of(driver: subprocess.Popen[str]) -> int:
    assert driver.stdout is not None
    for line in driver.stdout:
        found = re.search(r"started successfully on port (\d+)", line)
        if found is not None:
            os.set_blocking(driver.stdout.fileno(), False)  # nobody reads what else it says
            return int(found[1])
    raise AssertionError("chromedriver does not start")
