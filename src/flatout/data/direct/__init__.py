"""From files to device memory, with flat host memory."""
