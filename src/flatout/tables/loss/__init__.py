"""Losses that receive x, and group statistics."""
