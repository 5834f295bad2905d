"""Rows into a jax array: by updates in place of a buffer, or past jax.

Each update takes the buffer over from the last. Arrays that are written past jax are used again when the steps that
read them are done.
"""

from __future__ import annotations

import functools
import threading
from collections import defaultdict, deque
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from flatout.base.errors import UnreadableFile
from flatout.data.device.sinks import DeviceMemory, Wait, require_numbers

_LARGEST_INDEX = 2**31 - 1


@functools.partial(jax.jit, donate_argnums=0)
def _updated(array: jax.Array, block: jax.Array, at: jax.Array) -> tuple[jax.Array, jax.Array]:
    """The array with a block in its place, and a value that is ready when it is.

    The array itself cannot be waited for: the next update takes its buffer.
    """
    starts = [at[axis] for axis in range(array.ndim)]
    return jax.lax.dynamic_update_slice(array, block.astype(array.dtype), starts), at[0] + 1


class JaxSink:
    """One array on jax' default device; device memory holds it once, and the blocks that are under way.

    Its dtype is `cast_to`, by default jax' counterpart of the file's: 64-bit numbers become 32-bit ones.

    Example:
        >>> import numpy as np
        >>> sink = JaxSink((4, 2), np.dtype("float32"))
        >>> sink.write((1,), np.ones((3, 2), "float32"))()
        >>> sink.finish().sum().item()
        6.0
    """

    # Arrays of jax are immutable, so nobody may write them by their address.
    device_memory: DeviceMemory | None = None

    def __init__(
        self, shape: tuple[int, ...], dtype: np.dtype[Any], page_offset: int = 0, *, cast_to: str | None = None
    ):
        require_numbers(dtype, "jax")
        if max(shape) > _LARGEST_INDEX:
            raise UnreadableFile(
                f"jax counts positions in 32 bits. Received: shape {shape}. Expected at most {_LARGEST_INDEX:,} "
                "along an axis: load the rows in parts, or store several values in a row."
            )
        self._array = jnp.zeros(shape, jax.dtypes.canonicalize_dtype(cast_to or dtype))
        self.wants_pinned = next(iter(self._array.devices())).platform in ("gpu", "cuda")
        self._axes = len(shape)
        self._lock = threading.Lock()

    def write(self, at: tuple[int, ...], block: np.ndarray) -> Wait:
        # The transfer runs beside those of other threads. On a CPU there is none: jax takes aligned memory for its
        # array as it is (even with `may_alias=False`), so that the slot must stay until the update has read it.
        placed = jax.device_put(block.reshape((1,) * (self._axes - block.ndim) + block.shape))
        start = np.zeros(self._axes, np.int32)
        start[: len(at)] = at
        with self._lock:
            self._array, updated = _updated(self._array, placed, start)
        return functools.partial(jax.block_until_ready, updated)

    def finish(self) -> jax.Array:
        return self._array.block_until_ready()


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
