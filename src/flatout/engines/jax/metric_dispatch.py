"""A model's metrics on an accelerator: reset and read in one dispatch each, not one for every operation.

Keras resets and reads metrics op by op between epochs. On a GPU that takes milliseconds, as long as a hundred steps.
On a CPU it is cheap, and reading compiled results there could differ from Keras' in the last bit: Keras' way stays.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import jax
from keras.src.backend.common.stateless_scope import StatelessScope
from keras.src.backend.jax.trainer import JAXTrainer
from keras.src.trainers.trainer import Trainer

from . import executables as jax_cache


@dataclass
class _Metrics:
    """The metrics of a compiled model, found once: looking for them walks through all its layers."""

    # What `compile()` makes anew; with other owners there are other metrics.
    owners: tuple[Any, ...]
    variables: list[Any]
    # Whether they have variables, and no Python but Keras' own, which may be traced once and for all.
    can_be_compiled: bool
    # By the model's method that they stand for.
    functions: dict[str, Callable[..., Any]] = field(default_factory=dict)
    at_reset: list[Any] | None = None


_known: weakref.WeakKeyDictionary[Any, _Metrics] = weakref.WeakKeyDictionary()


def reset(model: Any) -> None:
    """`model.reset_metrics()`."""
    if not _can_be_compiled(model, "reset_metrics"):
        model.reset_metrics()
        return
    metrics = _metrics_of(model)
    # Keras' metrics are reset to constants, which are made again if a step has used up their memory.
    if metrics.at_reset is None or any(value.is_deleted() for value in metrics.at_reset):
        metrics.at_reset = _run(model, "reset_metrics", _reset_values)
    for variable, value in zip(metrics.variables, metrics.at_reset, strict=True):
        variable._value = value


def result(model: Any, logs: Any) -> dict[str, Any]:
    """`model._get_metrics_result_or_logs(logs)`."""
    if not _can_be_compiled(model, "get_metrics_result"):
        return dict(model._get_metrics_result_or_logs(logs))
    if _returns_results(model):
        return jax.device_get(dict(logs))
    results = _run(model, "get_metrics_result", lambda model, _: model.get_metrics_result())
    # All values in one transfer: each takes as long as a dozen steps.
    return jax.device_get(dict(results_or_logs(results, logs)))


def results_or_logs(results: dict[str, Any], logs: Any) -> Any:
    """The results of metrics, or the logs of the last step where those have other names, as Keras chooses."""
    return results if isinstance(logs, dict) and logs.keys() == results.keys() else logs


def _returns_results(model: Any) -> bool:
    """Whether the logs of a step are the metrics' results after it, as in Keras' own steps."""
    names = ("train_step", "test_step", "compute_metrics")
    return all(name not in vars(model) and getattr(type(model), name) is getattr(JAXTrainer, name) for name in names)


def _reset_values(model: Any, scope: StatelessScope) -> list[Any]:
    model.reset_metrics()
    return [scope.get_current_value(variable) for variable in _metrics_of(model).variables]


def _can_be_compiled(model: Any, method: str) -> bool:
    if jax.default_backend() == "cpu" or getattr(type(model), method) is not getattr(Trainer, method):
        return False
    return _metrics_of(model).can_be_compiled


def _metrics_of(model: Any) -> _Metrics:
    made = (model._loss_tracker, model._compile_metrics, model._compile_loss)
    owners = (*made, type(model).metrics, len(model._metrics))
    found = _known.get(model)
    if found is None or any(a is not b for a, b in zip(found.owners, owners, strict=True)):
        variables = model.metrics_variables
        found = _Metrics(owners, variables, bool(variables) and all(map(_is_of_keras, model.metrics)))
        _known[model] = found
    return found


def _is_of_keras(metric: Any) -> bool:
    parts = getattr(metric, "metrics", None) or []
    return type(metric).__module__.startswith("keras.") and all(map(_is_of_keras, parts))


def _run(model: Any, name: str, function: Callable[[Any, StatelessScope], Any]) -> Any:
    metrics = _metrics_of(model)
    values = [variable.value for variable in metrics.variables]
    if name not in metrics.functions:

        def stateless(values: list[Any]) -> Any:
            with StatelessScope(state_mapping=list(zip(metrics.variables, values, strict=True))) as scope:
                return function(model, scope)

        metrics.functions[name] = jax_cache.compile_shared(stateless, (values,))()
    return metrics.functions[name](values)
