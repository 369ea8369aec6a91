"""Every example of every page is run by a test, or says that it is a fragment."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import trailmark as tm
from tests.support.spark_feed import Feed, rows_of
from trailmark.checkpoint.policy import Policy

_ROOT = Path(__file__).parents[2]
_BLOCK = re.compile(r"(<!-- a fragment -->\n)?```python\n(.*?)```", re.DOTALL)
#: Who runs how many examples of a page.
_RUN = {
    "README.md": {"test_readme.py": 1},
    "docs/answers-on-time.md": {"test_answers_page.py": 5},
    "docs/high-availability.md": {"test_high_availability_page.py": 7},
    "docs/joins.md": {"test_joins_page.py": 6},
    "docs/kafka.md": {"test_examples.py": 1, "../spark/test_kafka.py": 2},
    "docs/recovery.md": {"test_pages.py": 8},
    "docs/spark.md": {"test_spark_docs.py": 2},
    "docs/streams.md": {"test_boundaries_page.py": 2, "test_state_page.py": 2, "test_pages.py": 4},
    "docs/tables.md": {"test_examples.py": 1, "test_tables_page.py": 1},
    "docs/testing-your-operators.md": {"test_testing_page.py": 2},
    "docs/tutorial.md": {"test_readme.py": 4},
    "docs/user-functions.md": {"test_user_functions_page.py": 2},
    "docs/user-operators.md": {"test_user_operators_page.py": 5},
}


def _examples(page: str) -> list[str]:
    found = _BLOCK.findall((_ROOT / page).read_text())
    return [code for is_fragment, code in found if not is_fragment]


def test_every_example_is_run() -> None:
    pages = [_ROOT / "README.md", *sorted((_ROOT / "docs").glob("*.md"))]
    found = {str(page.relative_to(_ROOT)): len(_examples(str(page))) for page in pages}
    assert {page: count for page, count in found.items() if count} == {
        page: sum(tests.values()) for page, tests in _RUN.items()
    }
    for page, tests in _RUN.items():
        for test in tests:
            text = (Path(__file__).parent / test).read_text()
            assert Path(page).name in text, f"{test} says nothing of {page}"


def test_every_policy_that_is_explained_is_one() -> None:
    for code in _examples("docs/recovery.md"):
        names: dict[str, Any] = {"tm": tm}
        exec(compile(code, "docs/recovery.md", "exec"), names)
        assert isinstance(names["checkpoint"], Policy)


def test_links_between_pages_lead_somewhere() -> None:
    for page in [_ROOT / "README.md", _ROOT / "CONTRIBUTING.md", *(_ROOT / "docs").glob("*.md")]:
        for target in re.findall(r"\]\(([^)\s]+)\)", _prose(page)):
            name, _, anchor = target.partition("#")
            if "://" in name:
                continue
            there = (page.parent / name).resolve() if name else page
            assert there.exists(), f"{page.name} links to {target}"
            if anchor and there.suffix == ".md":
                assert anchor in _anchors(there), f"{page.name} links to {target}"


def test_a_stream_is_written_queried_replayed_and_chained(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    feed = Feed(spark, tmp_path / "in", "item_id int, item_price int, ordered_at timestamp")
    at = pa.scalar(1_770_000_000_000_000, pa.timestamp("us", "UTC"))
    ids, prices = pa.array([1] * 30, pa.int32()), pa.array(range(30), pa.int32())
    feed.add(pa.table({"item_id": ids, "item_price": prices, "ordered_at": [at] * 30}))
    examples = [code for code in _examples("docs/streams.md") if _is_left(code)]
    names: dict[str, Any] = {"spark": spark, "tm": tm, "orders": feed.stream()}
    names["source"] = names["orders"]
    kept, recent, chain, tentative = (examples[place] for place in (0, 1, 3, 2))
    writing, reading = _below(tmp_path, kept).split("# Query the past.")
    exec(writing, names)
    names["query"].processAllAvailable()
    names["query"].stop()
    exec(reading, names)
    assert names["replayed"].columns == ["item_id", "item_price", "ordered_at"]
    exec(_below(tmp_path, recent.replace("starting_batch=100, ", "")), names)
    assert names["recent"].num_rows == 30
    for part in _below(tmp_path, chain).split("\n\n")[2:]:
        exec(part, names)
        for query in spark.streams.active:
            query.processAllAvailable()
            query.stop()
    exec(_below(tmp_path, tentative), names)
    assert rows_of(names["now"].select("item_id")) == rows_of(spark.createDataFrame([(1,)] * 3))
    assert names["known"].num_rows == names["history"].num_rows == 3


def _is_left(code: str) -> bool:
    """Whether no other test runs it."""
    return not re.search("with_heartbeat|stream_writer|records=.state|records., .state", code)


def _below(root: Path, code: str) -> str:
    return re.sub(r'"((?:ckpt/)?(?:orders|\d)|orders-average|out)"', rf'"{root}/\1"', code)


def _prose(page: Path) -> str:
    return re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL)


def _anchors(page: Path) -> set[str]:
    titles = re.findall(r"^#+ (.*)$", _prose(page), flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}
