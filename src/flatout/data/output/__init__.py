"""Predictions on their way to files."""
