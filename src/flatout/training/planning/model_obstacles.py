"""What a model itself puts in the way of an engine."""

from __future__ import annotations

from typing import Any

from flatout.base.errors import Reason, reason
from flatout.seam.keras_names import is_of_keras
from flatout.seam.layers import all_layers
from flatout.seam.trainers import is_made_by_torch_compile, is_under_strategy, runs_eagerly


def obstacles_of_model(model: Any, method: str, backend: str, may_round: bool) -> list[Reason]:
    """What a model itself puts in the way of an engine; `may_round` if equal up to rounding will do."""
    import keras

    why: list[Reason] = []
    if keras.distribution.distribution() is not None:
        why.append(reason("distribution"))
    if backend == "tensorflow" and is_under_strategy(model):
        why.append(reason("tf_distribute"))
    if backend == "jax" and keras.config.is_nnx_enabled():
        why.append(reason("nnx"))
    if runs_eagerly(model):
        why.append(reason("run_eagerly"))
    elif backend == "jax" and not model.jit_compile:
        blockers = sorted({type(layer).__name__ for layer in all_layers(model) if not layer.supports_jit})
        # Keras leaves a model uncompiled for layers that TensorFlow's XLA lacks, such as RandomRotation. jax compiles
        # them, but its programs round otherwise than one operation after the other does.
        if not (blockers and may_round):
            why.append(reason("jit_compile_off", ", ".join(blockers) or "it was compiled with jit_compile=False"))
    elif backend == "torch" and model.jit_compile:
        why.append(reason("torch_compile"))
    why.extend(_replaced_step_functions(model, method))
    return why


def _replaced_step_functions(model: Any, method: str) -> list[Reason]:
    name = {"fit": "train", "evaluate": "test", "predict": "predict"}[method]
    if not is_of_keras(getattr(type(model), f"make_{name}_function")):
        return [reason("custom_step_function", f"make_{name}_function")]
    function = getattr(model, f"{name}_function", None)
    function = getattr(function, "python_function", function)
    if function is None or is_of_keras(function) or is_made_by_torch_compile(function):
        return []
    return [reason("custom_step_function", f"{name}_function")]
