"""The note that a refused task leaves."""

from __future__ import annotations

import errno

import pytest

from trailmark.engine.refused import REFUSED, Refusal, leave_refusal, read_refusal
from trailmark.errors import DiskFull, InputDiffers
from trailmark.testing.disk import SimulatedDisk

_ERROR = InputDiffers("Batch 3 is in the log\n    with other rows.", where="in/1", fix="Go back.")


def test_the_last_refusal_is_found_on_one_line() -> None:
    storage = SimulatedDisk().storage()
    assert read_refusal(storage) is None
    leave_refusal(storage, InputDiffers("before"), "query", 2, None, lambda: 7)
    leave_refusal(storage, _ERROR, "query", 3, 1, lambda: 8)
    text = "InputDiffers: Batch 3 is in the log with other rows. (in/1) Go back."
    assert read_refusal(storage) == Refusal("query", 3, 1, text, 8)


@pytest.mark.parametrize("text", [b"", b"{}", b'{"body":{"text":"x"},"crc32":2337733023}'])
def test_a_note_that_cannot_be_read_is_none(text: bytes) -> None:
    storage = SimulatedDisk().storage()
    storage.replace(REFUSED, [text])
    assert read_refusal(storage) is None


def test_a_note_that_cannot_be_left_hides_nothing() -> None:
    disk = SimulatedDisk()
    storage = disk.storage()
    disk.fail_on(1, errno.ENOSPC)
    leave_refusal(storage, _ERROR, "query", 3, 1)
    leave_refusal(storage, DiskFull("full"), "query", 3, 1)
    assert read_refusal(storage) is None
