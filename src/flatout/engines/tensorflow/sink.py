"""Rows into a TensorFlow tensor: on a CPU into memory that it adopts, on a GPU into slices of a variable."""

from __future__ import annotations

import math
import mmap
from typing import Any

import numpy as np
import tensorflow as tf

from flatout.data.device.sinks import DeviceMemory, HostSink, Wait, nothing_to_wait_for, position, require_numbers


def TensorFlowSink(
    shape: tuple[int, ...], dtype: np.dtype[Any], page_offset: int = 0, *, cast_to: str | None = None
) -> TensorFlowHostSink | TensorFlowDeviceSink:
    """The sink for the device on which TensorFlow puts tensors here; `cast_to` names their dtype, if not the file's.

    Example:
        >>> import numpy as np
        >>> sink = TensorFlowSink((4, 2), np.dtype("float32"))
        >>> sink.write((1,), np.ones((3, 2), "float32"))()
        >>> sink.finish().shape
        TensorShape([4, 2])
    """
    require_numbers(dtype, "TensorFlow")
    kept = tf.as_dtype(cast_to or dtype)
    is_on_gpu = "GPU" in tf.zeros(()).device
    return TensorFlowDeviceSink(shape, kept) if is_on_gpu else TensorFlowHostSink(shape, kept)


class TensorFlowHostSink(HostSink):
    """A tensor in host memory.

    Slices of a variable would take the memory twice: TensorFlow copies a variable so written when it is read.
    """

    def __init__(self, shape: tuple[int, ...], kept: tf.DType):
        # On a page, because TensorFlow wants its tensors aligned, as NumPy's are not.
        count = math.prod(shape)
        memory = mmap.mmap(-1, max(count * kept.size, 1), flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        array = np.frombuffer(memory, kept.as_numpy_dtype, count=count).reshape(shape)
        super().__init__(shape, array.dtype, out=array)

    def finish(self) -> tf.Tensor:
        return tf.experimental.dlpack.from_dlpack(self._array.__dlpack__())


class TensorFlowDeviceSink:
    """A tensor on a GPU; while it is handed over, device memory holds it twice."""

    wants_pinned = True
    device_memory: DeviceMemory | None = None

    def __init__(self, shape: tuple[int, ...], kept: tf.DType):
        self._variable = tf.Variable(tf.zeros(shape, kept), trainable=False)

    def write(self, at: tuple[int, ...], block: np.ndarray) -> Wait:
        place = self._variable[position(at, block)]
        # Copied when it returns: TensorFlow's copies from host memory are synchronous.
        place.assign(tf.cast(tf.constant(block), self._variable.dtype))
        return nothing_to_wait_for

    def finish(self) -> tf.Tensor:
        return self._variable.read_value()
