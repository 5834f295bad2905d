"""A model's metrics as `Metric`s."""

from __future__ import annotations

from typing import Any

from keras import losses, metrics

from flatout.base.errors import Refusal, reason
from flatout.seam.compiled_parts import arguments_of, compile_metrics, function_of, metrics_of_outputs
from flatout.seam.keras_names import is_of_keras

from .network import Loss, Metric, MetricKind

_FUNCTIONS: dict[Any, MetricKind] = {
    metrics.sparse_categorical_accuracy: "sparse_accuracy",
    metrics.categorical_accuracy: "categorical_accuracy",
    metrics.binary_accuracy: "binary_accuracy",
    losses.mean_squared_error: "squared_error",
    losses.mean_absolute_error: "absolute_error",
}


def read_metrics(model: Any, outputs: int, loss: Loss) -> list[Metric]:
    """Read the metrics of a compiled and built model."""
    compiled = compile_metrics(model)
    if compiled is None:
        return []
    if not compiled.built:
        raise Refusal(reason("native_metric", "the metrics", "they are not built yet"))
    found = [_read(metric, weighted, outputs, loss) for metric, weighted in metrics_of_outputs(compiled)]
    # The loss' tracker and the one that holds all that compile was given.
    if len(model.metrics) != 2:
        raise Refusal(reason("native_metric", "the model", "it has metrics beside those that compile was given"))
    return found


def _read(metric: Any, weighted: bool, outputs: int, loss: Loss) -> Metric:
    function = function_of(metric)
    plain = (
        is_of_keras(type(metric))
        and type(metric).update_state is metrics.MeanMetricWrapper.update_state
        and type(metric).result is metrics.Mean.result
        and not {"update_state", "result"} & vars(metric).keys()
    )
    if not plain or function not in _FUNCTIONS or metric.dtype != "float32":
        raise Refusal(reason("native_metric", metric.name, "it has no kernel"))
    kind = _FUNCTIONS[function]
    numbers = arguments_of(metric)
    threshold = numbers.pop("threshold", 0.5)
    if numbers or (kind == "sparse_accuracy") != (loss.kind == "sparse"):
        raise Refusal(reason("native_metric", metric.name, "it takes other targets than the loss"))
    if kind == "categorical_accuracy" and outputs == 1:
        raise Refusal(reason("native_metric", metric.name, "a single output has no categories"))
    return Metric(kind, float(threshold), weighted)
