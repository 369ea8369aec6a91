"""Trailmark inside PySpark Structured Streaming. The only package that imports pyspark.

On the driver `aggregate` makes an operator of what the user asked for, `arguments` checks what is
asked of any operator, and `operate` builds the plan: `control` adds one row per bucket so that
every task knows its bucket, `ticks` a source that asks for batches, and `types` translates schemas.
`listener` follows the queries; `explain` tells what is in a plan, from the `plan_note` that goes
with every operator. In the Python workers `task` runs the engine over the rows of one bucket and
batch.

Spark keeps what it is good at: sources, offsets, shuffles, scheduling, retries and sinks. State,
logs and recovery are left to :mod:`trailmark.engine`.

Modules are imported by name: a new worker that has to recover imports `task` and nothing else.
"""
