"""The machinery of `flatout.vectorize`: array code for loops, and the proof that it is equal."""
