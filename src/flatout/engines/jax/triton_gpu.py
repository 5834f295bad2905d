"""What the GPU is that kernels of ours are compiled for."""

from __future__ import annotations

import jax

_OLDEST = 8.0


def capability() -> str:
    return str(getattr(jax.local_devices()[0], "compute_capability", "0"))


def cores() -> int:
    """Multiprocessors of the GPU."""
    return int(getattr(jax.local_devices()[0], "core_count", 1))


def compiles_triton() -> bool:
    """Whether there is a GPU that Triton compiles kernels of ours for: since Ampere."""
    try:
        return float(capability()) >= _OLDEST
    except ValueError:  # A GPU of another maker.
        return False
