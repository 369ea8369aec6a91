"""The parts that the time of a batch is divided into, in the order in which it comes to them."""

from __future__ import annotations

# Spark, by its own account.
FIND = "Spark: finding the input, offset and commit logs"
PLAN = "Spark: planning"
SCHEDULE = "Spark: scheduling"
SHUFFLE = "Spark: reading Parquet, writing the shuffle"
TASK_START = "Spark: task until Python runs"
TASK_END = "Spark: task after Python"
SLOWER = "waiting for the slower bucket"
SPARK_OTHER = "Spark: other"

# The Python worker.
ROWS_IN = "rows into Python (shuffle read, Arrow)"
JOIN = "putting rows together, fingerprint"
OPEN_LOGS = "opening and closing the logs"
STATE = "state: open, mark, ledger"
PROCESS = "operator (kernel)"
FOOTPRINTS = "footprints, account"
WAIT = "waiting for the input log"
ENCODE = "encoding logs, checksums"
WRITE = "writing logs"
SYNC = "sync"
TRIM = "removing old input"
ROWS_OUT = "handing results to Spark"
OTHER = "other in the worker"

#: What Trailmark does in the worker.
OWN = (
    JOIN,
    OPEN_LOGS,
    STATE,
    PROCESS,
    FOOTPRINTS,
    WAIT,
    ENCODE,
    WRITE,
    SYNC,
    TRIM,
    OTHER,
)
ALL = (
    FIND,
    PLAN,
    SCHEDULE,
    SHUFFLE,
    TASK_START,
    ROWS_IN,
    *OWN,
    ROWS_OUT,
    TASK_END,
    SLOWER,
    SPARK_OTHER,
)
