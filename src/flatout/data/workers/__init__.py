"""Threads and processes that make batches ahead of their use."""
