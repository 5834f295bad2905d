"""The training step of a dense model as CUDA kernels: lowered, printed, compiled and launched."""
