"""What `compile` made of a model's losses, metrics and optimizer, and what the user gave it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

# Attribute of Keras' optimizers by the name of a slot.
_SLOTS = {
    "momentum": "_momentums",
    "velocity": "_velocities",
    "velocity_hat": "_velocity_hats",
    "average_gradient": "_average_gradients",
}


def compile_loss(model: Any) -> Any:
    """Keras' object around all losses of a model; None before `compile`, or without a loss."""
    return getattr(model, "_compile_loss", None)


def compile_metrics(model: Any) -> Any:
    """Keras' object around the metrics that `compile` was given; None if there are none."""
    return getattr(model, "_compile_metrics", None)


def given_loss(model: Any) -> Any:
    """The loss as the user gave it to `compile`, in whatever structure."""
    return getattr(compile_loss(model), "_user_loss", None)


def given_metrics(model: Any) -> Any:
    return getattr(compile_metrics(model), "_user_metrics", None)


def given_weighted_metrics(model: Any) -> Any:
    return getattr(compile_metrics(model), "_user_weighted_metrics", None)


def losses_of_outputs(compiled: Any) -> list[tuple[Any, float | None]]:
    """The loss and its weight for each output of a model whose losses are built."""
    return [(loss, weight) for _, loss, weight, _ in compiled._flat_losses]


def metrics_of_outputs(compiled: Any) -> Iterator[tuple[Any, bool]]:
    """Each metric of built metrics, and whether it takes sample weights."""
    for group, weighted in ((compiled._flat_metrics, False), (compiled._flat_weighted_metrics, True)):
        for entry in group:
            yield from ((metric, weighted) for metric in ([] if entry is None else entry.metrics))


def loss_tracker(model: Any) -> Any:
    """The metric that takes the mean of the loss."""
    return model._loss_tracker


def function_of(loss_or_metric: Any) -> Any:
    """The function that one of Keras' wrappers calls; what was given itself if it is no wrapper."""
    return getattr(loss_or_metric, "fn", getattr(loss_or_metric, "_fn", loss_or_metric))


def arguments_of(loss_or_metric: Any) -> dict[str, Any]:
    """The keyword arguments with which one of Keras' wrappers calls its function."""
    return dict(loss_or_metric._fn_kwargs)


def slot_variables(optimizer: Any, slot: str) -> list[Any]:
    """A built optimizer's variables of a slot, one for each variable that it trains."""
    is_public = slot == "momentum" and hasattr(optimizer, "momentums")
    found: list[Any] = optimizer.momentums if is_public else getattr(optimizer, _SLOTS[slot])
    return found


def position_of(optimizer: Any, variable: Any) -> int:
    """The place of a trained variable in the slots."""
    return int(optimizer._get_variable_index(variable))


def decays(optimizer: Any, variable: Any) -> bool:
    """Whether weight decay is meant for a variable."""
    return optimizer.weight_decay is not None and bool(optimizer._use_weight_decay(variable))


def iterations_variable(optimizer: Any) -> Any:
    """The count of steps; the public attribute is another thing while gradients are accumulated."""
    return optimizer._iterations


def given_learning_rate(optimizer: Any) -> Any:
    """A variable, or the user's schedule."""
    return optimizer._learning_rate


def current_learning_rate(optimizer: Any) -> Any:
    """The variable, or what the schedule gives for the next step."""
    return optimizer._get_current_learning_rate()
