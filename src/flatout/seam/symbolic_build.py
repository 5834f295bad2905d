"""Building a model's layers, loss, metrics and optimizer before the first step, as Keras' `fit` does."""

from __future__ import annotations

from typing import Any

from .compiled_parts import compile_loss, compile_metrics
from .layers import all_layers


def has_built_layers(model: Any) -> bool:
    return all(layer.built for layer in all_layers(model))


def has_built_losses_and_metrics(model: Any) -> bool:
    """Whether nothing of what `compile` was given still waits for the first batch."""
    return all(part is None or part.built for part in (compile_loss(model), compile_metrics(model)))


def is_unbuilt(model: Any) -> bool:
    """Whether Keras' `fit` would look at a batch before its first step."""
    return not has_built_layers(model) or not has_built_losses_and_metrics(model)


def build_on_batch(model: Any, batch: Any) -> None:
    """Build what is not built yet on a batch, without running anything; `()` will do if all is built."""
    model._symbolic_build(data_batch=batch)


def build_on_iterator(model: Any, iterator: Any) -> None:
    """Build on the first batch of an epoch iterator, drawing what stock Keras draws for it."""
    model._symbolic_build(iterator=iterator)
