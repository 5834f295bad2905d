"""Arrays of jax that are written past jax, and used again when the steps that read them are done."""

from __future__ import annotations

import threading
from collections import defaultdict, deque
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from flatout.data.device.sinks import DeviceMemory


@jax.jit
def _mark() -> jax.Array:
    """Ready when all that was dispatched to the device before is done."""
    return jnp.zeros((), jnp.int32)


class JaxLanding:
    """A pool of arrays of each shape.

    Jax allocates an array by a program that makes it, which waits for the steps that were dispatched before: so arrays
    are used again. To jax they are immutable; nobody has read what is in them, or will again, while they are here.
    """

    def __init__(self) -> None:
        self._free: defaultdict[Any, deque[tuple[jax.Array, jax.Array]]] = defaultdict(deque)
        self._lock = threading.Lock()

    def takes(self, dtype: np.dtype[Any]) -> bool:
        return bool(jax.dtypes.canonicalize_dtype(dtype) == dtype) and dtype.kind in "biufc"

    def __call__(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> tuple[jax.Array, DeviceMemory]:
        with self._lock:
            free = self._free[shape, dtype]
            array, done = free.popleft() if free else (jnp.empty(shape, dtype), None)
        jax.block_until_ready(array if done is None else done)
        return array, DeviceMemory(array.unsafe_buffer_pointer(), array.nbytes)

    def give_back(self, array: jax.Array) -> None:
        with self._lock:
            self._free[array.shape, array.dtype].append((array, _mark()))
