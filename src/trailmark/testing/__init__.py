"""What runs an operator without Spark, on a disk that stops wherever that is asked for.

`disk` is that disk, and `processes` the processes that follow one another on it.
"""
