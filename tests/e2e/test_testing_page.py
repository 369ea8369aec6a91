"""The page about testing: its examples run as they are printed, and print what it says."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

_PAGE = Path(__file__).parents[2] / "docs" / "testing-your-operators.md"


def test_the_examples_print_what_the_page_says(capsys: pytest.CaptureFixture[str]) -> None:
    blocks = re.findall(r"```(python|text)\n(.*?)```", _PAGE.read_text(), flags=re.DOTALL)
    assert [kind for kind, _ in blocks] == ["python", "text"] * 2
    names: dict[str, Any] = {"__name__": "page"}
    for (_, code), (_, printed) in zip(blocks[::2], blocks[1::2], strict=True):
        exec(compile(code, str(_PAGE), "exec"), names)
        assert capsys.readouterr().out == printed
