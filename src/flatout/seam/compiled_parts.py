"""What `compile` made of a model's losses and metrics, and what the user gave it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any


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
