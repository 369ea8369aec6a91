"""Scripts that run an engine on the orders of a workload and print what happens as JSON lines.

A script is run by the interpreter of its engine's environment: it imports the standard library and
that engine, and of this project no more than other such scripts, unless the engine is this project.
"""
