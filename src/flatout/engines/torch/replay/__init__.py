"""The recorded step at work: operation by operation, or as a CUDA graph."""
