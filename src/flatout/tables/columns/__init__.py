"""Frames, keys and values on the host."""
