"""NEXMark on Apache Flink's Table API, in the environment of its package from PyPI.

As `bench.peers.jobs.flink_job`, which says what is chosen and why. Flink reads the events as CSV;
results are CSV files that are visible once their checkpoint is complete.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

from pyflink.table import TableEnvironment

from bench.nexmark.flink_queries import (
    QUERIES,
    RESULTS,
    ROWTIMES,
    VIEWS,
    declaration,
    seconds,
)
from bench.peers.jobs.flink_job import (
    LOOK_S,
    Watched,
    file_options,
    free_port,
    settings,
    tell,
)


def main() -> None:
    job = json.loads(sys.argv[1])
    place, port = Path(job["place"]).absolute(), free_port()
    asked = settings(job["variant"], place, port, every=job["checkpoint_every"])
    tables = TableEnvironment.create(asked)
    tables.get_config().set("table.local-time-zone", "UTC")
    _declare(tables, job, place)
    query = QUERIES[job["query"]].strip()
    client = tables.execute_sql(f"INSERT INTO results {query}").get_job_client()
    ended = client.get_job_execution_result()
    watched = Watched(f"http://127.0.0.1:{port}/jobs/{client.get_job_id()}")
    if watched.wait_until_it_runs(ended):
        tell("ready")
    told = 0
    while not ended.done():
        time.sleep(LOOK_S)
        rows = watched.rows()
        if rows is not None and rows > told:
            told = rows
            tell("progress", rows=rows, **watched.checkpoints())
    ended.result()  # raises if the job has failed
    tell("done", rows=job["rows"])


def _declare(tables: TableEnvironment, job: Any, place: Path) -> None:
    query, longest_ms = job["query"], job["longest_ms"]
    for kind in ROWTIMES[query]:
        options = file_options({"path": (Path(job["events"]) / "csv" / kind).as_uri()})
        tables.execute_sql(declaration(kind, query, longest_ms, options))
    for name, view in VIEWS.get(query, {}).items():
        asked = view.format(longest=seconds(longest_ms)).strip()
        tables.execute_sql(f"CREATE VIEW {name} AS {asked}")
    sink = file_options({"path": (place / "results").as_uri()})
    tables.execute_sql(f"CREATE TABLE results ({RESULTS[query]}) WITH ({sink})")


if __name__ == "__main__":
    main()
