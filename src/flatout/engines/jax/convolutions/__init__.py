"""Convolutions that a GPU has no good kernels for, as products or as kernels of ours."""
