"""Recurrent layers as kernels that hold all time steps on a GPU."""
