"""Pages of the documents whose examples are run as they are printed."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest


def run_examples(page: Path, names: dict[str, Any], places: Sequence[str], root: Path) -> int:
    """Runs the examples of a page one after another, each query to the end of what is there;
    returns how many examples there were. ``places`` are paths in them that are below ``root``."""
    blocks = re.findall(r"```python\n(.*?)```", page.read_text(), flags=re.DOTALL)
    for block in blocks:
        for place in places:
            block = block.replace(f'"{place}"', repr(str(root / place)))
        exec(compile(block, str(page), "exec"), names)
        if "writeStream" in block:
            names["query"].processAllAvailable()
            names["query"].stop()
    return len(blocks)


def assert_prints_what_it_says(page: Path, capsys: pytest.CaptureFixture[str]) -> int:
    """Runs the examples of a page one after another, each of which is followed by what it prints;
    returns how many there were."""
    blocks = re.findall(r"```(python|text)\n(.*?)```", page.read_text(), flags=re.DOTALL)
    assert [kind for kind, _ in blocks] == ["python", "text"] * (len(blocks) // 2)
    names: dict[str, Any] = {"__name__": "page"}
    for (_, code), (_, printed) in zip(blocks[::2], blocks[1::2], strict=True):
        exec(compile(code, str(page), "exec"), names)
        assert capsys.readouterr().out == printed
    return len(blocks) // 2
