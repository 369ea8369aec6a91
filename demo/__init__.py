"""`make demo`: a query on embedded Spark is killed, recovers, and loses nothing.

`story` tells it from begin to end. `orders` makes the input and computes by hand what has to come
out, `query` is the program that gets killed, `supervise` starts, follows and kills it, `results`
compares, `display` and `picture` show.
"""
