"""The script of docs/high-availability.md runs as it stands, until it is told to end."""

from __future__ import annotations

import json
import os
import re
import signal
import threading
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

import trailmark as tm
from tests.support.spark_runs import wait_until
from trailmark.leases import newest_term, open_lease

_PAGE = Path(__file__).parents[2] / "docs" / "high-availability.md"


def _orders(root: Path) -> None:
    directory = root / "shop/orders"
    directory.mkdir(parents=True)
    lines = [json.dumps({"item": n % 2, "price": float(n)}) for n in range(200)]
    (directory / "0.json").write_text("\n".join(lines))


def test_the_script_answers_hands_over_and_leaves_nothing_behind(
    spark: SparkSession, tmp_path: Path
) -> None:
    (code,) = re.findall(r"```python\n(.*?)```", _PAGE.read_text(), flags=re.DOTALL)
    code = re.sub(r'"(shop/\w+)"', rf'"{tmp_path}/\1"', code)
    _orders(tmp_path)

    def is_answered() -> bool:
        logs = tmp_path / "shop/averages"
        return (logs / "meta.json").exists() and len(tm.read_table(logs)) == 2

    def tell() -> None:
        try:
            wait_until("both items have a mean", is_answered)
        finally:
            os.kill(os.getpid(), signal.SIGTERM)

    names: dict[str, Any] = {}
    before = signal.getsignal(signal.SIGTERM)
    telling = threading.Thread(target=tell)
    telling.start()
    exec(compile(code, str(_PAGE), "exec"), names)
    telling.join()
    assert is_answered()
    assert names["ended"] == "stopped"
    assert signal.getsignal(signal.SIGTERM) == before
    assert not spark.streams.active
    term = newest_term(open_lease(tmp_path / "shop/lease")[1])
    assert term is not None
    assert term.is_released
