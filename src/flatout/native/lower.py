"""`flatout.lower`: from a Keras model to a `Program` of kernels and buffers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from flatout.base.errors import CannotLower, Refusal, reason
from flatout.seam.compiled_parts import given_loss
from flatout.seam.trainers import build_on_batch

if TYPE_CHECKING:
    from .lowered_program import Program


def lower(model: Any, *, batch_size: int = 32) -> Program:
    """Read a built and compiled Keras model, and write its training step as CUDA kernels.

    The model is a chain of Flatten, Reshape, Rescaling, Normalization, Dense, activations, Dropout and
    BatchNormalization, with a cross-entropy, squared, absolute or Huber loss and SGD, Adam, AdamW or RMSprop;
    docs/native.md has the list. Nothing is compiled or run yet, and no GPU is needed.

    Args:
        model: The model.
        batch_size: Rows of a step.

    Raises:
        CannotLower: There are no kernels for this model; the error has the reason.

    Example:
        >>> import flatout, keras
        >>> model = keras.Sequential([keras.layers.Input((4,)), keras.layers.Dense(1)])
        >>> model.compile("sgd", "mse")
        >>> program = flatout.lower(model)
        >>> program.steps["train"][-2:]
        ('update', 'accumulate')
    """
    if batch_size < 1:
        raise ValueError(f"Invalid value for argument `batch_size`. Received: {batch_size}. Expected at least 1.")
    from flatout.native.staged.staged_program import staged_program

    from .lowered_program import Program

    try:
        _build(model)
        return Program(**vars(staged_program(model, "train", batch_size, "float32", None, False)))
    except Refusal as refusal:
        raise CannotLower(refusal.reason) from None


def _build(model: Any) -> None:
    """Have Keras build what `fit` would build before its first step: loss, metrics and optimizer."""
    from flatout.native.model.read_model import check_model

    check_model(model)
    if not getattr(model, "compiled", False):
        raise Refusal(reason("native_model", "it is not compiled"))
    if not model.built or getattr(model, "inputs", None) is None or len(model.inputs) != 1:
        raise Refusal(reason("native_model", "it is not built, or has not one input"))
    width = model.outputs[0].shape[-1]
    x = np.zeros((1, *(size or 1 for size in model.inputs[0].shape[1:])), "float32")
    user_loss = given_loss(model)
    # A string, a function or an object; only the shape of the targets is wanted, which the metric "accuracy" goes by.
    names = (user_loss, getattr(user_loss, "__name__", None), type(user_loss).__name__)
    is_sparse = any(isinstance(name, str) and "sparse" in name.lower() for name in names)
    y = np.zeros((1,), "int32") if is_sparse else np.zeros((1, width), "float32")
    try:
        build_on_batch(model, (x, y))
    except Exception as error:
        raise Refusal(reason("untraceable", "the model", str(error).partition("\n")[0])) from error
