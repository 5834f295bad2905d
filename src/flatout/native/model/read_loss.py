"""A model's loss as a `Loss`, with Keras' own rules for what its logarithms are taken of."""

from __future__ import annotations

from typing import Any

import keras
from keras import losses

from flatout.base.errors import Refusal, reason
from flatout.seam.compiled_parts import arguments_of, compile_loss, losses_of_outputs
from flatout.seam.keras_names import is_of_keras
from flatout.seam.layers import has_own_losses

from .network import Activation, Dense, Layer, Loss, LossForm, LossKind, Softmax

_FUNCTIONS: dict[Any, LossKind] = {
    losses.sparse_categorical_crossentropy: "sparse",
    losses.categorical_crossentropy: "categorical",
    losses.binary_crossentropy: "binary",
    losses.mean_squared_error: "mse",
    losses.mean_absolute_error: "mae",
    losses.huber: "huber",
}


def read_loss(model: Any, outputs: int, last: Layer | None, keras_layer: Any) -> Loss:
    """Read the loss of a compiled and built model.

    Args:
        model: The model.
        outputs: Values of its output.
        last: The last layer as it was read.
        keras_layer: The model's last layer.
    """
    compiled = compile_loss(model)
    each = losses_of_outputs(compiled) if compiled is not None and compiled.built else []
    if len(each) != 1:
        raise Refusal(reason("native_loss", "the model", "it has not exactly one"))
    if has_own_losses(model):
        raise Refusal(reason("native_loss", "the model", "it adds losses of its own"))
    loss, weight = each[0]
    kind, numbers = _kind(loss)
    if loss.dtype != "float32":
        raise Refusal(reason("native_loss", loss.name, f"its dtype is {loss.dtype}"))
    if loss.reduction not in ("sum_over_batch_size", "mean", "sum"):
        raise Refusal(reason("native_loss", loss.name, f"the reduction {loss.reduction!r} has no kernel"))
    if numbers.get("axis", -1) not in (-1, 1) or numbers.get("ignore_class") is not None:
        raise Refusal(reason("native_loss", loss.name, "its axis or ignore_class has no kernel"))
    if kind == "sparse" and outputs == 1:
        raise Refusal(reason("native_loss", loss.name, "sparse labels need more than one class"))
    unknown = set(numbers) - {"axis", "ignore_class", "from_logits", "label_smoothing", "delta"}
    if unknown:
        raise Refusal(reason("native_loss", loss.name, f"{', '.join(sorted(unknown))} has no kernel"))
    return Loss(
        kind,
        _form(kind, bool(numbers.get("from_logits", False)), last, keras_layer),
        keras.config.epsilon(),
        float(numbers.get("label_smoothing", 0.0)),
        float(numbers.get("delta", 1.0)),
        loss.reduction != "sum",
        1.0 if weight is None else float(weight),
        keras.config.backend() == "tensorflow" and kind in ("sparse", "categorical"),
    )


def _kind(loss: Any) -> tuple[LossKind, dict[str, Any]]:
    is_own = is_of_keras(type(loss)) and "call" not in vars(loss)
    function = getattr(loss, "fn", None)
    is_wrapper = type(loss).call is losses.Loss.call or getattr(type(loss).call, "__qualname__", "").startswith(
        "LossFunctionWrapper."
    )
    if not (is_own and is_wrapper) or function not in _FUNCTIONS:
        name = getattr(function, "__name__", None) or type(loss).__name__
        raise Refusal(reason("native_loss", name, "it has no kernel"))
    return _FUNCTIONS[function], arguments_of(loss)


def _form(kind: LossKind, from_logits: bool, last: Layer | None, keras_layer: Any) -> LossForm:
    if kind not in ("sparse", "categorical", "binary"):
        return "logits"
    if keras.config.backend() == "tensorflow" and _gives_logits_away(last):
        if type(keras_layer) not in (keras.layers.Dense, keras.layers.Activation, keras.layers.Softmax):
            # The tensor that knows its logits is not the one that the loss is given.
            raise Refusal(reason("native_loss", "the cross-entropy", f"{keras_layer.name} hides the logits"))
        return "z"
    if from_logits:
        return "logits"
    return "clipped" if keras.config.backend() == "tensorflow" and kind == "sparse" else "probabilities"


def _gives_logits_away(last: Layer | None) -> bool:
    """On tensorflow, what softmax and sigmoid return carries what they were given, and losses prefer that."""
    return isinstance(last, Softmax) or (isinstance(last, Dense | Activation) and last.curve.name == "sigmoid")
