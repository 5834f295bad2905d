"""One engine for each backend, made when first asked for: nobody imports a backend that is not used."""

from __future__ import annotations

import functools
import importlib
import threading

from flatout.base.group import Group, Place, join

from .contract import Engine

_GROUPS = {"jax": "JaxGroup", "tensorflow": "TensorFlowGroup", "torch": "TorchGroup"}
_ENGINES = {"jax": "JaxEngine", "tensorflow": "TensorFlowEngine", "torch": "TorchEngine"}


# Fits in several threads have one engine.
_ONE_AT_A_TIME = threading.Lock()


def engine_for(backend: str) -> Engine:
    """The engine of a Keras backend: `"jax"`, `"tensorflow"` or `"torch"`."""
    with _ONE_AT_A_TIME:
        return _engine_for(backend)


@functools.cache
def _engine_for(backend: str) -> Engine:
    engine: Engine = getattr(importlib.import_module(f".{backend}.engine", __package__), _ENGINES[backend])()
    return engine


def join_group(backend: str, place: Place) -> Group:
    """Join the other processes of a group, before this one has used any device."""
    module = importlib.import_module(f".{backend}.{backend}_group", __package__)
    group: Group = getattr(module, _GROUPS[backend])(place)
    join(group)
    return group
