"""`flatout doctor`: takes a fit apart by measurement, and says what holds it back and what a change would gain."""
