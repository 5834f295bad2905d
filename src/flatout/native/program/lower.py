"""`flatout.lower`: from a Keras model to a `Program` of kernels and buffers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from flatout.base.errors import CannotLower, Refusal, reason
from flatout.seam.compiled_parts import given_loss
from flatout.seam.symbolic_build import build_on_batch

if TYPE_CHECKING:
    from .program import Program

# Offsets into a batch are 32-bit.
_MOST_VALUES = 2**31 - 1


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
    try:
        _build(model)
        return lowered(model, "train", batch_size, "float32", None, False)
    except Refusal as refusal:
        raise CannotLower(refusal.reason) from None


def lowered(
    model: Any,
    task: Literal["train", "test", "predict"],
    batch_size: int,
    x_type: str,
    y_type: str | None,
    weighted: bool,
) -> Program:
    """Lower a model, for data of these types.

    Raises:
        Refusal: There are no kernels for it.
    """
    from flatout.native.model.read_model import read
    from flatout.native.staged.builder import READABLE
    from flatout.native.staged.staged_form import StagedForm

    from .kernel_source import shared_code
    from .program import Program

    network, binding = read(model, task)
    if network.widest * batch_size > _MOST_VALUES:
        raise Refusal(reason("native_data", f"a batch of {batch_size} rows has more than 2**31 values"))
    if y_type is None:
        y_type = "int32" if network.loss is not None and network.loss.kind == "sparse" else "float32"
    for name in (x_type, y_type):
        if name not in READABLE:
            raise Refusal(reason("native_data", f"they are {name}"))
    form = StagedForm(network, batch_size, x_type, y_type, weighted)
    prelude = shared_code(form.declarations, list(form.kernels.values()))
    return Program(network, "staged", batch_size, form.layout, form.kernels, form.steps, prelude, model, binding)


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
