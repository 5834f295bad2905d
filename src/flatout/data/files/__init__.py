"""Arrays in files: which bytes hold which rows, and how much of them is in memory."""
