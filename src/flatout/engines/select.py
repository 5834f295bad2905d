"""One engine for each backend, made when first asked for: nobody imports a backend that is not used."""

from __future__ import annotations

import functools
import importlib

from .contract import Engine

_ENGINES = {"jax": "JaxEngine", "tensorflow": "TensorFlowEngine", "torch": "TorchEngine"}


@functools.cache
def engine_for(backend: str) -> Engine:
    """The engine of a Keras backend: `"jax"`, `"tensorflow"` or `"torch"`."""
    engine: Engine = getattr(importlib.import_module(f".{backend}.engine", __package__), _ENGINES[backend])()
    return engine
