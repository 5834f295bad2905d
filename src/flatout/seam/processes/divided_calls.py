"""Where a group of processes divides Keras' own step: in the call of the model, and where gradients are applied.

Each process computes the outputs of its rows, and gets those of all: the loss and the metrics are then those of the
whole batch in each of them, however they reduce it. The mean of everybody's gradients is that of the whole batch: what
comes by way of the outputs counts as often as there are processes (`DividingGroup.rows_of_all`), and what does not,
such as a penalty of weights, is the same in all of them.
"""

from __future__ import annotations

import contextlib
import contextvars
import functools
import importlib
from collections.abc import Callable, Iterator
from typing import Any

from flatout.base.group import DividingGroup, joined
from flatout.base.when_used import keras
from flatout.seam import patches
from flatout.seam.keras_names import is_of_keras
from flatout.seam.layers import all_layers
from flatout.seam.variable_state import is_symbolic

_METHODS_WITH_X = ("train_step", "test_step", "predict_step", "compute_loss", "compute_metrics")
_dividing: contextvars.ContextVar[bool] = contextvars.ContextVar("flatout_dividing", default=False)
_applying: contextvars.ContextVar[bool] = contextvars.ContextVar("flatout_applying", default=False)


@contextlib.contextmanager
def divided(model: Any, group: DividingGroup) -> Iterator[None]:
    """Meanwhile, have a group divide the calls of a model; not those that one process makes alone."""
    from keras.src.optimizers.base_optimizer import BaseOptimizer
    from keras.src.optimizers.loss_scale_optimizer import LossScaleOptimizer

    layer_call = (keras.layers.Layer, "__call__")
    draw = (_random_module(), "draw_seed")
    applies = [(optimizer, "apply") for optimizer in (BaseOptimizer, LossScaleOptimizer)]

    layers: list[Any] = []  # Of the model, once it is built: a walk through them takes long beside a small step.
    plain_call, plain_draw = patches.beneath(*layer_call), patches.beneath(*draw)

    def call(layer: Any, *args: Any, **kwargs: Any) -> Any:
        if layer is not model or not args or group.is_alone or _dividing.get() or is_symbolic():
            return plain_call(layer, *args, **kwargs)
        return _divided_call(plain_call, group, layers, layer, *args, **kwargs)

    def draw_seed(seed: Any) -> Any:
        drawn = plain_draw(seed)
        return drawn + _offset(drawn, group.place.rank) if _dividing.get() else drawn

    def apply_with(target: tuple[type, str]) -> Any:
        original = patches.beneath(*target)

        def apply(optimizer: Any, grads: Any, trainable_variables: Any = None) -> Any:
            if group.is_alone or _applying.get() or is_symbolic():
                return original(optimizer, grads, trainable_variables)
            with _set(_applying):
                return original(optimizer, _means(group, layers, list(grads)), trainable_variables)

        return apply

    _penalties_are_means()  # Not while a step is traced.
    replaced = {layer_call: call, draw: draw_seed, **{target: apply_with(target) for target in applies}}
    with patches.replaced_here(replaced):
        yield


def own_rows(model: Any) -> Callable[[int], slice] | None:
    """Which rows of x this process needs of a batch of so many, if it is one of those that divide calls of the model.

    None if it needs all: nothing is divided, or code of the user's sees x besides the model.
    """
    group = joined()
    if not isinstance(group, DividingGroup) or group.is_alone:
        return None
    if not all(is_of_keras(getattr(model, name)) for name in _METHODS_WITH_X):
        return None
    return group.place.computed_rows


def _divided_call(
    original: Any, group: DividingGroup, layers: list[Any], model: Any, inputs: Any, *args: Any, **kwargs: Any
) -> Any:
    first_input = next(leaf for leaf in keras.tree.flatten(inputs) if leaf is not None)
    total = keras.ops.shape(first_input)[0]
    first, last = group.place.rows_of(total)
    computed = group.place.computed_rows(total)
    part = keras.tree.map_structure(lambda leaf: None if leaf is None else leaf[computed], inputs)
    with _set(_dividing):
        outputs = original(model, part, *args, **kwargs)
    share = (last - first) / total if _penalties_are_means() else keras.ops.cast(last - first > 0, "float32")
    layers[:] = layers or all_layers(model)
    for layer in layers:
        if layer._losses:
            _check_losses(layer)
            layer._losses[:] = [_sum(group, loss * keras.ops.cast(share, loss.dtype)) for loss in layer._losses]

    def of_all(leaf: Any) -> Any:
        if isinstance(total, int) and (not len(leaf.shape) or leaf.shape[0] != computed.stop - first):
            raise ValueError(
                "workers= divides the rows of a batch, and needs a row of each output for each of them. Received: "
                f"an output of shape {tuple(leaf.shape)} for {computed.stop - first} rows. Train it with workers=1, or "
                "on jax."
            )
        return group.rows_of_all(leaf, first, last, total)

    def with_mask(leaf: Any) -> Any:
        whole, mask = of_all(leaf), getattr(leaf, "_keras_mask", None)
        if mask is not None:
            whole._keras_mask = of_all(mask)
        return whole

    return keras.tree.map_structure(with_mask, outputs)


@functools.cache
def _penalties_are_means() -> bool:
    """Whether a layer's penalty of its outputs is divided by the number of rows, as newer versions of Keras do."""
    layer = keras.layers.Identity(activity_regularizer=keras.ops.sum, name="flatout")
    layer(keras.ops.ones((2, 1)))
    return float(layer.losses[0]) < 2.0


def _check_losses(layer: Any) -> None:
    if not is_of_keras(type(layer)) and (layer.activity_regularizer is None or len(layer._losses) > 1):
        raise ValueError(
            "workers= cannot divide a loss that a layer adds on this backend: whether it is a sum or a mean over rows, "
            f"nobody can tell. Received: add_loss in {layer.name!r} ({type(layer).__name__}). Give it to `compile` as "
            "a loss of an output, or train with workers=1, or on jax."
        )


def _sum(group: DividingGroup, value: Any) -> Any:
    """The sum of everybody's value."""
    rank, size = group.place.rank, group.place.size
    return keras.ops.sum(group.rows_of_all(keras.ops.reshape(value, (1,)), rank, rank + 1, size))


def _means(group: DividingGroup, layers: list[Any], gradients: list[Any]) -> list[Any]:
    """Everybody's mean gradients; and statistics that a layer keeps of its rows, such as batch normalization."""
    there = [number for number, gradient in enumerate(gradients) if gradient is not None]
    # Not those that are frozen, which nobody changes.
    kept = [variable for layer in layers for variable in layer._non_trainable_variables]
    statistics = [variable for variable in kept if "float" in variable.dtype]
    means = group.means([*(gradients[number] for number in there), *(variable.value for variable in statistics)])
    for variable, mean in zip(statistics, means[len(there) :], strict=True):
        variable.assign(mean)
    for number, mean in zip(there, means, strict=False):
        gradients[number] = mean
    return gradients


@contextlib.contextmanager
def _set(flag: contextvars.ContextVar[bool]) -> Iterator[None]:
    token = flag.set(True)
    try:
        yield
    finally:
        flag.reset(token)


def _random_module() -> Any:
    return importlib.import_module(f"keras.src.backend.{keras.config.backend()}.random")


def _offset(seed: Any, rank: int) -> Any:
    """Other random numbers in each process: the same for all would be the same for each part of a batch."""
    return keras.ops.cast(keras.ops.convert_to_tensor([0, rank * 1_000_003]), seed.dtype)
