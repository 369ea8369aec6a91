"""Replicas of an operator: the same results, with the same numbers, from whichever can be read.

- `numbered`: the results of one replica, by their numbers;
- `choosing`: which of the replicas is followed, and what is said to all of them;
- `comparing`: whether two of them have given the same.
"""
