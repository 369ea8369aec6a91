"""Exit codes."""

OK = 0
#: It ran, and something is wrong with the logs.
WRONG = 1
COULD_NOT_RUN = 2
INTERRUPTED = 130
#: As a shell calls it: whoever read the output went away.
BROKEN_PIPE = 141
