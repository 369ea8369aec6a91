"""Operators: what happens to a batch, without files and without Spark.

`protocol` says what an operator is, `aggregate` is the windowed aggregate, `assign` finds the
windows of a batch's tuples, `footprints` turns windows into rows of the output log and back.
"""
