"""One engine for each backend, made when first asked for: nobody imports a backend that is not used."""

from __future__ import annotations

import functools

from .contract import Engine


@functools.cache
def engine_for(backend: str) -> Engine:
    """The engine of a Keras backend: `"jax"`, `"tensorflow"` or `"torch"`."""
    if backend == "jax":
        from flatout.engines.jax.engine import JaxEngine

        return JaxEngine()
    if backend == "tensorflow":
        from flatout.engines.tensorflow.engine import TensorFlowEngine

        return TensorFlowEngine()
    from flatout.engines.torch.engine import TorchEngine

    return TorchEngine()
