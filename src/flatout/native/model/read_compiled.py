"""What `compile` gave a model: its loss, metrics and optimizer as `Loss`, `Metric`s and `Optimizer`."""

from __future__ import annotations

from typing import Any

import keras
from keras import losses, metrics

from flatout.base.errors import Refusal, reason
from flatout.seam.compiled_parts import (
    arguments_of,
    compile_loss,
    compile_metrics,
    decays,
    function_of,
    losses_of_outputs,
    metrics_of_outputs,
    position_of,
    slot_variables,
)
from flatout.seam.keras_names import is_of_keras
from flatout.seam.layers import has_own_losses

from .network import (
    Activation,
    Binding,
    Clip,
    Dense,
    Layer,
    Loss,
    LossForm,
    LossKind,
    Metric,
    MetricKind,
    Network,
    Optimizer,
    OptimizerKind,
    Softmax,
)

_LOSSES: dict[Any, LossKind] = {
    losses.sparse_categorical_crossentropy: "sparse",
    losses.categorical_crossentropy: "categorical",
    losses.binary_crossentropy: "binary",
    losses.mean_squared_error: "mse",
    losses.mean_absolute_error: "mae",
    losses.huber: "huber",
}
_METRICS: dict[Any, MetricKind] = {
    metrics.sparse_categorical_accuracy: "sparse_accuracy",
    metrics.categorical_accuracy: "categorical_accuracy",
    metrics.binary_accuracy: "binary_accuracy",
    losses.mean_squared_error: "squared_error",
    losses.mean_absolute_error: "absolute_error",
}
_OPTIMIZERS: dict[str, OptimizerKind] = {"SGD": "sgd", "Adam": "adam", "AdamW": "adam", "RMSprop": "rmsprop"}
_CLIPS: dict[str, Clip] = {"clipnorm": "norm", "global_clipnorm": "global_norm", "clipvalue": "value"}


def read_loss(model: Any, outputs: int, last: Layer | None, keras_layer: Any) -> Loss:
    """Read the loss of a compiled and built model with so many outputs, whose last layer these are."""
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
    if not (is_own and is_wrapper) or function not in _LOSSES:
        name = getattr(function, "__name__", None) or type(loss).__name__
        raise Refusal(reason("native_loss", name, "it has no kernel"))
    return _LOSSES[function], arguments_of(loss)


def _form(kind: LossKind, from_logits: bool, last: Layer | None, keras_layer: Any) -> LossForm:
    if kind not in ("sparse", "categorical", "binary"):
        return "logits"
    is_tensorflow = keras.config.backend() == "tensorflow"
    is_sigmoid = isinstance(last, Dense | Activation) and last.curve.name == "sigmoid"
    # On tensorflow, what softmax and sigmoid return carries what they were given, and losses prefer that.
    if is_tensorflow and (is_sigmoid or isinstance(last, Softmax)):
        if type(keras_layer) not in (keras.layers.Dense, keras.layers.Activation, keras.layers.Softmax):
            # The tensor that knows its logits is not the one that the loss is given.
            raise Refusal(reason("native_loss", "the cross-entropy", f"{keras_layer.name} hides the logits"))
        return "z"
    if from_logits:
        return "logits"
    return "clipped" if is_tensorflow and kind == "sparse" else "probabilities"


def read_metrics(model: Any, outputs: int, loss: Loss) -> list[Metric]:
    """Read the metrics of a compiled and built model, which has this loss."""
    compiled = compile_metrics(model)
    if compiled is None:
        return []
    if not compiled.built:
        raise Refusal(reason("native_metric", "the metrics", "they are not built yet"))
    found = [_metric(metric, weighted, outputs, loss) for metric, weighted in metrics_of_outputs(compiled)]
    # The loss' tracker and the one that holds all that compile was given.
    if len(model.metrics) != 2:
        raise Refusal(reason("native_metric", "the model", "it has metrics beside those that compile was given"))
    return found


def _metric(metric: Any, weighted: bool, outputs: int, loss: Loss) -> Metric:
    function = function_of(metric)
    plain = (
        is_of_keras(type(metric))
        and type(metric).update_state is metrics.MeanMetricWrapper.update_state
        and type(metric).result is metrics.Mean.result
        and not {"update_state", "result", "reset_state"} & vars(metric).keys()
    )
    if not plain or function not in _METRICS or metric.dtype != "float32":
        raise Refusal(reason("native_metric", metric.name, "it has no kernel"))
    kind = _METRICS[function]
    numbers = arguments_of(metric)
    threshold = numbers.pop("threshold", 0.5)
    if numbers or (kind == "sparse_accuracy") != (loss.kind == "sparse"):
        raise Refusal(reason("native_metric", metric.name, "it takes other targets than the loss"))
    if kind == "categorical_accuracy" and outputs == 1:
        raise Refusal(reason("native_metric", metric.name, "a single output has no categories"))
    return Metric(kind, float(threshold), weighted)


def read_optimizer(model: Any, network: Network, binding: Binding) -> Optimizer:
    """Read the optimizer of a compiled model, building it if need be, and bind its variables."""
    optimizer = model.optimizer
    kind = _OPTIMIZERS.get(type(optimizer).__name__)
    if kind is None or not is_of_keras(type(optimizer)) or "update_step" in vars(optimizer):
        raise Refusal(reason("native_optimizer", type(optimizer).__name__, "it has no kernel"))
    for name in ("use_ema", "loss_scale_factor", "gradient_accumulation_steps"):
        if getattr(optimizer, name, None):
            raise Refusal(reason("native_optimizer", optimizer.name, f"{name} has no kernel"))
    if not optimizer.built:
        optimizer.build(model.trainable_variables)
    slots, numbers = _numbers(kind, optimizer)
    clip, clip_at = _clip(optimizer)
    decayed: set[str] = set()
    for weight in network.trained:
        variable = binding.weights[weight.name]
        for slot in slots:
            variables = slot_variables(optimizer, slot)
            binding.slots[f"{weight.name}/{slot}"] = variables[position_of(optimizer, variable)]
        if decays(optimizer, variable):
            decayed.add(weight.name)
    return Optimizer(
        kind,
        tuple(slots),
        tuple(numbers.items()),
        clip,
        clip_at,
        None if optimizer.weight_decay is None else float(optimizer.weight_decay),
        frozenset(decayed),
    )


def _numbers(kind: OptimizerKind, optimizer: Any) -> tuple[list[str], dict[str, float]]:
    """The slots in the order of the kernel's arguments, and the constants of the formula."""
    if kind == "sgd":
        slots = ["momentum"] if optimizer.momentum != 0 else []
        return slots, {"momentum": float(optimizer.momentum), "nesterov": float(bool(optimizer.nesterov))}
    if kind == "adam":
        slots = ["momentum", "velocity", *(["velocity_hat"] if optimizer.amsgrad else [])]
        return slots, {name: float(getattr(optimizer, name)) for name in ("beta_1", "beta_2", "epsilon")}
    slots = ["velocity"]
    if optimizer.momentum > 0:
        slots.append("momentum")
    if optimizer.centered:
        slots.append("average_gradient")
    return slots, {name: float(getattr(optimizer, name)) for name in ("rho", "momentum", "epsilon")}


def _clip(optimizer: Any) -> tuple[Clip, float]:
    for name, clip in _CLIPS.items():
        limit = getattr(optimizer, name)
        if limit and limit > 0:
            return clip, float(limit)
    return "none", 0.0
