"""`flatout.vectorize`: array code for loops, used once it was verified against the original."""
