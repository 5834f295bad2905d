"""Convolutions and poolings that a GPU has no good kernels for, as other operations or as kernels of ours."""
