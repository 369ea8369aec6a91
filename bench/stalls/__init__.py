"""A union and an operator while a stream is missing: real streams, decisions and engine, and a
clock that moves by what they take."""
