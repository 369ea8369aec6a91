"""The command line: parse, call, print.

One module per command, imported when that command runs: neither pyspark nor pandas is ever needed.
Looking is done by :mod:`trailmark.inspection`, changing by :mod:`trailmark.upkeep`.

Exit codes: 0 all is well, 1 something is wrong with the logs, 2 the command could not run.
"""

from trailmark.cli.entry import main

__all__ = ["main"]
