"""The first reset of metrics where stock Keras builds them in its first step: after that reset, not before it.

So it is on tensorflow. A metric that `compile` was given begins with the values that it was made with, or that an
earlier `fit` has left in it, which `reset_state()` need not give. Whoever builds ahead lets it do so all the same.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .compiled_parts import compile_metrics
from .trainers import build_on_batch

_METHOD = "reset_metrics"


def is_first_reset(method: Any) -> bool:
    """Whether a model has this method from here, and not from its user."""
    return getattr(method, "__module__", None) == __name__


def build_before_first_reset(model: Any, batch: Any, task: str) -> None:
    """Build what is not built yet on a batch; the next `reset_metrics`, whoever calls it, passes over what is new."""
    metrics = compile_metrics(model)
    is_built = metrics is None or metrics.built
    known = {id(variable) for variable in model.metrics_variables}
    at_start: list[tuple[Any, np.ndarray]] = []

    def new_values() -> list[tuple[Any, np.ndarray]]:
        new = (variable for variable in model.metrics_variables if id(variable) not in known)
        return [(variable, variable.numpy()) for variable in new]

    def first_reset() -> None:
        del vars(model)[_METHOD]
        if not all(np.array_equal(variable.numpy(), value) for variable, value in at_start):
            # Somebody has taken a step meanwhile, which would have built them.
            model.reset_metrics()
            return
        # Tracing a step may have made more of them.
        kept = new_values()
        if not is_built:
            metrics.built = False
        try:
            model.reset_metrics()
        finally:
            if not is_built:
                metrics.built = True
        for variable, value in kept:
            variable.assign(value)

    # Unless the reset that the last call wanted is still to come, or the method is the user's own.
    vars(model).setdefault(_METHOD, first_reset)
    optimizer = model.optimizer
    if task != "train":
        vars(model)["optimizer"] = None  # Only training builds it.
    try:
        build_on_batch(model, batch)
    finally:
        vars(model)["optimizer"] = optimizer
    at_start += new_values()
