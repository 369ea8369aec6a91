"""Benchmarks: speed as ratios within one run, one line per figure."""
