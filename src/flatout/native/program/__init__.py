"""Buffers and kernels as data, and as source."""
