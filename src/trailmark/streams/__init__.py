"""Persistent streams: written as logs, queried, replayed and followed. Nothing here needs Spark.

A *written stream* has no operator. Its rows are in data files that many tasks write at once; a
batch exists from the moment its manifest, which names its files, is in the log of batches. `writer`
does both, `retention` removes the old end again.

A *view* reads a written stream, or an operator's logs, batch by batch: committed batches only.
`table` gives them to those who have no Spark.

Modules are imported by name: a process that only commits does without the views.
"""
