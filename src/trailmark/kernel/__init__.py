"""The compiled kernel: hashing, the table of open windows, window assignment, aggregate functions.

Plain C without Python's headers, loaded with ctypes in less than a millisecond: a new process can
recover at once instead of importing and warming up a compiler first. It allocates nothing and
touches no files; :mod:`trailmark.state` and :mod:`trailmark.operators` give it all memory.
"""
