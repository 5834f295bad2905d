"""A model's metrics on an accelerator: reset and read in one dispatch each, not one for every operation.

Keras resets and reads metrics op by op between epochs. On a GPU that takes milliseconds, as long as a hundred steps.
On a CPU it is cheap, and reading compiled results there could differ from Keras' in the last bit: Keras' way stays.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

import jax
from keras.src.backend.common.stateless_scope import StatelessScope
from keras.src.trainers.trainer import Trainer

from . import jax_cache

# The compiled functions of each model, with the variables they were compiled for: `compile()` makes new ones.
_compiled: weakref.WeakKeyDictionary[Any, dict[str, tuple[list[Any], Callable[..., Any]]]] = weakref.WeakKeyDictionary()


def reset(model: Any) -> None:
    """`model.reset_metrics()`."""
    if not _can_be_compiled(model, "reset_metrics"):
        model.reset_metrics()
        return
    for variable, value in zip(model.metrics_variables, _run(model, "reset_metrics", _reset_values), strict=True):
        variable._value = value


def result(model: Any, logs: Any) -> dict[str, Any]:
    """`model._get_metrics_result_or_logs(logs)`."""
    if not _can_be_compiled(model, "get_metrics_result"):
        return dict(model._get_metrics_result_or_logs(logs))
    results = _run(model, "get_metrics_result", lambda model, _: model.get_metrics_result())
    # All values in one transfer: each takes as long as a dozen steps.
    return jax.device_get(results if isinstance(logs, dict) and logs.keys() == results.keys() else dict(logs))


def _reset_values(model: Any, scope: StatelessScope) -> list[Any]:
    model.reset_metrics()
    return [scope.get_current_value(variable) for variable in model.metrics_variables]


def _can_be_compiled(model: Any, method: str) -> bool:
    return (
        jax.default_backend() != "cpu"
        and getattr(type(model), method) is getattr(Trainer, method)
        and bool(model.metrics_variables)
        and all(map(_is_of_keras, model.metrics))
    )


def _is_of_keras(metric: Any) -> bool:
    """Whether a metric's Python is nothing but Keras' own code, which may be traced once and for all."""
    parts = getattr(metric, "metrics", None) or []
    return type(metric).__module__.startswith("keras.") and all(map(_is_of_keras, parts))


def _run(model: Any, name: str, function: Callable[[Any, StatelessScope], Any]) -> Any:
    variables = model.metrics_variables
    values = [variable.value for variable in variables]
    known, compiled = _compiled.setdefault(model, {}).get(name, ([], None))
    if compiled is None or [id(variable) for variable in known] != [id(variable) for variable in variables]:

        def stateless(values: list[Any]) -> Any:
            with StatelessScope(state_mapping=list(zip(variables, values, strict=True))) as scope:
                return function(model, scope)

        compiled = jax_cache.compile_shared(stateless, (values,), donate=())
        _compiled[model][name] = variables, compiled
    return compiled(values)
