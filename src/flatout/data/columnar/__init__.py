"""Columns of frames, Parquet and Arrow files as arrays."""
