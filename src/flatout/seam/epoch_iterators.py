"""Keras' epoch iterators: what stands between a data adapter and the steps of `fit`, `evaluate` and `predict`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from flatout.base.when_used import keras

from .trainers import strategy_arguments, trainer_module

# What Keras' `fit` passes to `evaluate`, to have it use the iterator that it keeps.
KEPT_VALIDATION = "_use_cached_eval_dataset"


def plain_iterator_class() -> Any:
    """The `EpochIterator` that those of all backends derive from; it gives NumPy arrays."""
    from keras.src.trainers.epoch_iterator import EpochIterator

    return EpochIterator


def iterator_class(trainer_module: Any) -> Any:
    """The backend's own `EpochIterator`."""
    plain = plain_iterator_class()
    return next(
        kind
        for kind in vars(trainer_module).values()
        if isinstance(kind, type) and issubclass(kind, plain) and kind is not plain
    )


def read_by(kind: Any, read: Callable[[Any, Callable[[], Any]], Any]) -> Any:
    """One of Keras' epoch iterator classes that begins a pass by `read`, called with the adapter and its own way to."""

    class ReadBy(kind):  # type: ignore[misc]
        def _get_iterator(self) -> Any:
            return read(self.data_adapter, super()._get_iterator)

    return ReadBy


def adapter_of(x: Any, shuffle: Any = False, class_weight: Any = None) -> Any:
    """Keras' data adapter of anything that it takes, with what Keras warns of shown as Keras' warning."""
    return plain_iterator_class()(x, shuffle=shuffle, class_weight=class_weight).data_adapter


def passes(iterator: Any) -> Iterator[tuple[int, int, Any]]:
    """An epoch: for each step its first number, its last, and the iterator over batches to take from, unread."""
    return iterator._enumerate_iterator()  # type: ignore[no-any-return]


def steps_seen(iterator: Any) -> int:
    """Steps of the current pass that were begun."""
    return int(iterator._steps_seen)


def batches_of_pass(iterator: Any) -> int | None:
    """Batches of a pass over the data, whatever an epoch takes of them; None if nobody knows yet."""
    return iterator._num_batches  # type: ignore[no-any-return]


def validation_iterator(model: Any, evaluation: dict[str, Any]) -> Any:
    """What Keras' `fit` makes to validate with, of the arguments of `evaluate`."""
    return iterator_class(trainer_module(keras.config.backend()))(
        **{name: evaluation[name] for name in ("x", "y", "sample_weight", "batch_size")},
        steps_per_execution=model.steps_per_execution,
        steps_per_epoch=evaluation["steps"],
        shuffle=False,
        **strategy_arguments(model),
    )


def kept_validation(model: Any) -> Any:
    """The iterator that a `fit` keeps for its validation; None if there is none yet."""
    return getattr(model, "_eval_epoch_iterator", None)


def keep_validation(model: Any, iterator: Any) -> None:
    """Have a `fit` keep an iterator for its validation; None at the beginning."""
    model._eval_epoch_iterator = iterator


def forget_validation(model: Any) -> None:
    """Have no iterator left over of a `fit` that is done."""
    if kept_validation(model) is not None:
        del model._eval_epoch_iterator
