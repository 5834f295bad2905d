"""A model's metrics as `Metric`s."""

from __future__ import annotations

from typing import Any

from keras import losses
from keras.src.metrics import accuracy_metrics, reduction_metrics

from flatout.base.errors import Refusal, reason

from .network import Loss, Metric, MetricKind

_FUNCTIONS: dict[Any, MetricKind] = {
    accuracy_metrics.sparse_categorical_accuracy: "sparse_accuracy",
    accuracy_metrics.categorical_accuracy: "categorical_accuracy",
    accuracy_metrics.binary_accuracy: "binary_accuracy",
    losses.mean_squared_error: "squared_error",
    losses.mean_absolute_error: "absolute_error",
}


def read_metrics(model: Any, outputs: int, loss: Loss) -> list[Metric]:
    """Read the metrics of a compiled and built model."""
    compiled = model._compile_metrics
    if compiled is None:
        return []
    if not compiled.built:
        raise Refusal(reason("native_metric", "the metrics", "they are not built yet"))
    found: list[Metric] = []
    for group, weighted in ((compiled._flat_metrics, False), (compiled._flat_weighted_metrics, True)):
        for entry in group:
            for metric in [] if entry is None else entry.metrics:
                found.append(_read(metric, weighted, outputs, loss))
    # The loss' tracker and the one that holds all that compile was given.
    if len(model.metrics) != 2:
        raise Refusal(reason("native_metric", "the model", "it has metrics beside those that compile was given"))
    return found


def _read(metric: Any, weighted: bool, outputs: int, loss: Loss) -> Metric:
    wrapper = reduction_metrics.MeanMetricWrapper
    function = getattr(metric, "_fn", None)
    plain = (
        type(metric).__module__.startswith("keras.src.")
        and type(metric).update_state is wrapper.update_state
        and type(metric).result is reduction_metrics.Mean.result
        and not {"update_state", "result"} & vars(metric).keys()
    )
    if not plain or function not in _FUNCTIONS or metric.dtype != "float32":
        raise Refusal(reason("native_metric", metric.name, "it has no kernel"))
    kind = _FUNCTIONS[function]
    numbers = dict(metric._fn_kwargs)
    threshold = numbers.pop("threshold", 0.5)
    if numbers or (kind == "sparse_accuracy") != (loss.kind == "sparse"):
        raise Refusal(reason("native_metric", metric.name, "it takes other targets than the loss"))
    if kind == "categorical_accuracy" and outputs == 1:
        raise Refusal(reason("native_metric", metric.name, "a single output has no categories"))
    return Metric(kind, float(threshold), weighted)
