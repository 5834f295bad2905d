"""Keras' torch backend: its functions by name, wherever a version defines them."""

from __future__ import annotations

import importlib
from typing import Any

from keras.src.backend.torch import Variable

# The modules whose functions a recording replaces; after the 3.16 of August 2026 `core` lies inside `torch/ops`.
core: Any = importlib.import_module(Variable.__module__)
random: Any = importlib.import_module("keras.src.backend.torch.random")
convert_to_tensor, get_device, to_torch_dtype = core.convert_to_tensor, core.get_device, core.to_torch_dtype


def modules_with(name: str) -> list[Any]:
    """The modules by which Keras' own code and users' reach a function of `core`."""
    names = ("keras.src.backend", "keras.src.backend.torch", core.__name__.rpartition(".")[0])
    others = [importlib.import_module(module) for module in dict.fromkeys(names)]
    return [core, *(module for module in others if hasattr(module, name))]
