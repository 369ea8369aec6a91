"""The names a user imports: sorted, all there, and no others."""

from __future__ import annotations

import inspect
import subprocess
import sys
from subprocess import PIPE

import trailmark


def test_public_names_are_sorted_and_complete() -> None:
    assert list(trailmark.__all__) == sorted(trailmark.__all__)
    later = {  # imported when they are asked for
        *("aggregate", "apply", "barrier", "explain", "explanation", "join", "listen"),
        *("read_table", "register", "stable", "stream_writer", "testing", "union"),
        *("standby", "status", "with_heartbeat"),
        *("Continuous", "CostBenefit", "Delta", "FullSnapshot", "Incremental"),
        *("NoCheckpoint", "Periodic", "SlowWindows", "UpstreamBackup"),
    }
    defined = later | {
        name
        for name, value in vars(trailmark).items()
        if not name.startswith("_") and not inspect.ismodule(value)
    }
    assert defined == set(trailmark.__all__)


def test_names_that_are_imported_later_can_be_looked_up_now() -> None:
    code = "import trailmark; print(*dir(trailmark))"
    shown = subprocess.run([sys.executable, "-c", code], stdout=PIPE, check=True, text=True).stdout
    assert set(trailmark.__all__) <= set(shown.split())


def test_every_public_name_explains_itself() -> None:
    for name in trailmark.__all__:
        assert inspect.getdoc(getattr(trailmark, name)), name
