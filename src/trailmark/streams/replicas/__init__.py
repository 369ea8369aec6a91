"""Replicas of an operator: the same results, with the same numbers, from whichever can be read.

- `numbered`: the results of one replica, by their numbers (`positions`);
- `tentative`: its tentative results, which have none;
- `looking`, `reading`: what the replicas have, and how it is read from any of them;
- `choosing`: which of them is followed, and what is said to all of them;
- `answering`, `place`: the same where tentative results are read, too, and where a reader is;
- `comparing`: whether two of them have given the same.
"""
