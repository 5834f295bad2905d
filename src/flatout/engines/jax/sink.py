"""Rows into a jax array, by updates in place of a buffer that each update takes over from the last."""

from __future__ import annotations

import functools
import threading
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

    Args:
        shape: Of the whole array.
        dtype: Of the file; jax makes 64-bit numbers 32-bit ones unless told otherwise.
        page_offset: Ignored.
        cast_to: Name of the array's dtype; by default jax' counterpart of the file's.

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

        def wait() -> None:
            updated.block_until_ready()

        return wait

    def finish(self) -> jax.Array:
        return self._array.block_until_ready()
