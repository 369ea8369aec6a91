"""Operators: what happens to a batch, without files and without Spark.

`protocol` says what an operator is, and what its state. Each operator is a package of its own;
`kinds` is the one place that lists them for whoever only has their logs, `logged` says what such
readers get to know.
"""
