"""What the checker knows of values, and what operations make of it."""
