"""Pages of the documents whose examples are run as they are printed."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any


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
