"""When `engine="auto"` trains by one kernel: where that is exact, and faster than the engine of the backend."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from flatout.base.errors import MissingExtra, Refusal
from flatout.base.options import current

# Backends on which it was measured; the others have no arrays that kernels could read.
_BACKENDS = ("jax", "torch")


def one_kernel_is_better(model: Any, inputs: Any, batch_size: int) -> bool:
    """Whether a long fit shall run natively although nobody asked for it. The model's loss and metrics are built.

    `inputs` are `(x, y, sample_weight)`, on the host or the device.
    """
    import keras

    if keras.config.backend() not in _BACKENDS or not _has_clusters():
        return False
    from flatout.native.fused.fused_plan import Precision, plans
    from flatout.native.model.read_model import read

    from .data_checks import unpacked

    try:
        network, _ = read(model, "train")
        x, _, weight = unpacked(inputs, "train")
        precision: Precision = "fast" if current().precision == "fast" else "exact"
        plans(network, batch_size, np.dtype(x.dtype).name, weight is not None, precision)
    except (Refusal, TypeError, AttributeError):
        return False
    return True


@functools.cache
def _has_clusters() -> bool:
    """Whether there is a GPU whose blocks work together in clusters, and it is the backend's."""
    import keras

    from flatout.engines.select import engine_for
    from flatout.native.launch.select_launcher import default_launcher, make_launcher

    if default_launcher() != "cuda.core" or not engine_for(keras.config.backend()).reuses_memory:
        return False
    try:
        return make_launcher("cuda.core").why_no_clusters() is None
    except MissingExtra:
        return False
