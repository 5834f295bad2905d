"""Losses run for a moment, to count and to compare: one file for each backend, with the same functions in each."""
