"""Rows that go to the device chunk by chunk, ahead of their use."""
