"""One engine for each backend, made when first asked for: nobody imports a backend that is not used."""

from __future__ import annotations

import functools
from typing import cast

from .contract import Engine


@functools.cache
def engine_for(backend: str) -> Engine:
    """The engine of a Keras backend, `"jax"`, `"tensorflow"` or `"torch"`; or `"native"`, upon the one in use."""
    if backend == "native":
        import keras

        from flatout.native.run.native_engine import NativeEngine

        return cast(Engine, NativeEngine(engine_for(keras.config.backend())))
    if backend == "jax":
        from flatout.engines.jax.engine import JaxEngine

        return JaxEngine()
    if backend == "tensorflow":
        from flatout.engines.tensorflow.engine import TensorFlowEngine

        return TensorFlowEngine()
    from flatout.engines.torch.engine import TorchEngine

    return TorchEngine()
