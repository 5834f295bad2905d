"""Keras' own step with something taken away, in a model that is afterwards as before; and one batch again and again."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import Any

from flatout.base.when_used import keras

from .adapters import adapter_class
from .compiled_parts import compile_loss, function_of, loss_tracker, losses_of_outputs
from .trainers import COMPUTE_LOSS_OF_STEP

_MISSING = object()
# What a fit leaves on a model besides variables.
_LEFT_BY_FIT = (
    "train_function",
    "test_function",
    "history",
    "stop_training",
    "stop_evaluating",
    "training",
    "_initial_epoch",
    "_eval_epoch_iterator",
    "_jax_state",
    "_jax_state_synced",
)


class AblatedStep:
    """A model's step with some of its methods replaced; compiled once, and used as often as wanted.

    Args:
        model: Compiled and built.
        methods: In the place of methods that the step calls.
        loss_function: In the place of the function that the loss calls.
        function: In the place of what Keras makes of the step.
    """

    def __init__(
        self,
        model: Any,
        methods: dict[str, Callable[..., Any]] | None = None,
        loss_function: Callable[..., Any] | None = None,
        function: Callable[..., Any] | None = None,
    ):
        train_step = model.train_step

        def of_its_own(*args: Any) -> Any:
            return train_step(*args)

        # jax gives what it has compiled of a model's method to all that ask for the same method.
        self._methods = {"train_step": of_its_own, **(methods or {})}
        self._model, self._loss_function, self._function = model, loss_function, function

    @contextlib.contextmanager
    def in_place(self, around: Callable[[Callable[..., Any]], Callable[..., Any]]) -> Iterator[None]:
        """Meanwhile, have the model's `fit` run this step, by way of what `around` makes of its function."""
        model, own = self._model, vars(self._model)
        with _kept(model, (*self._methods, "train_function")), _calling(model, self._loss_function):
            # Past the trackers of Keras, for which a function is no state.
            own.update(self._methods)
            own["train_function"] = self._function
            model.make_train_function()
            self._function = own["train_function"]
            own["train_function"] = around(self._function)
            yield


def plain(model: Any) -> AblatedStep:
    return AblatedStep(model)


def without_loss(model: Any) -> AblatedStep:
    """With the mean of the outputs in the place of the loss."""

    def compute_loss(*args: Any, **kwargs: Any) -> Any:
        y_pred = kwargs["y_pred"] if "y_pred" in kwargs else args[2]
        means = [keras.ops.mean(keras.ops.cast(leaf, "float32")) for leaf in keras.tree.flatten(y_pred)]
        return functools.reduce(keras.ops.add, means)

    return AblatedStep(model, {COMPUTE_LOSS_OF_STEP: compute_loss})


def without_metrics(model: Any) -> AblatedStep:
    """With the mean of the loss alone."""

    def compute_metrics(*args: Any, **kwargs: Any) -> dict[str, Any]:
        return {"loss": loss_tracker(model).result()}

    return AblatedStep(model, {"compute_metrics": compute_metrics})


def with_loss_function(model: Any, function: Callable[..., Any]) -> AblatedStep:
    """With another function for the one that the model's only loss calls."""
    return AblatedStep(model, loss_function=function)


def with_loss_of_one_row(model: Any) -> AblatedStep:
    """With the loss of a batch's first row: what a loop over rows does once, as array code would for all of them."""
    loss = only_loss(model)
    function = getattr(loss, _called_by(loss))

    def of_one_row(y_true: Any, y_pred: Any, **kwargs: Any) -> Any:
        return function(*keras.tree.map_structure(lambda leaf: leaf[:1], (y_true, y_pred)), **kwargs)

    return AblatedStep(model, loss_function=of_one_row)


def without_step(model: Any) -> AblatedStep:
    """With a function that takes the batch, and does nothing."""
    steps = model.steps_per_execution

    def on_jax(state: Any, iterator: Any) -> Any:
        for _ in range(steps):
            next(iterator)
        return {}, state

    def on_tensorflow(iterator: Any) -> Any:
        for _ in range(steps):
            next(iterator)
        return {}

    chosen: dict[str, Callable[..., Any]] = {"jax": on_jax, "tensorflow": on_tensorflow}
    return AblatedStep(model, function=chosen.get(keras.config.backend(), lambda data: {}))


def only_loss(model: Any) -> Any:
    """The function that the model's loss calls, or the loss object; None if there are several losses, or none."""
    compiled = compile_loss(model)
    if compiled is None or not compiled.built:
        return None
    losses = [loss for loss, _ in losses_of_outputs(compiled) if loss is not None]
    return losses[0] if len(losses) == 1 else None


@contextlib.contextmanager
def _calling(model: Any, function: Callable[..., Any] | None) -> Iterator[None]:
    if function is None:
        yield
        return
    loss = only_loss(model)
    name = _called_by(loss)
    with _kept(loss, (name,)):
        vars(loss)[name] = function
        yield


def _called_by(loss: Any) -> str:
    """Where a loss has its function: one of Keras' wrappers, or a class of its own."""
    return "fn" if hasattr(loss, "fn") else "call"


def as_before(model: Any) -> contextlib.AbstractContextManager[None]:
    """Have what a `fit` leaves on a model, but for its variables, as it was."""
    return _kept(model, _LEFT_BY_FIT)


@contextlib.contextmanager
def _kept(thing: Any, names: tuple[str, ...]) -> Iterator[None]:
    """Have attributes of an object afterwards as they are now, those that it has none of included."""
    own = vars(thing)
    before = {name: own.get(name, _MISSING) for name in names}
    try:
        yield
    finally:
        for name, value in before.items():
            own.pop(name, None)
            if value is not _MISSING:
                own[name] = value


def loss_behind(loss: Any) -> Any:
    """The user's function behind a loss: of a wrapper of Keras', or the `call` of a class."""
    function = function_of(loss)
    return function if hasattr(function, "__code__") else type(loss).call


@functools.cache
def _repeated_class() -> type:
    class RepeatedBatch(adapter_class()):  # type: ignore[misc]
        """One batch, again and again, as the backend takes it: nothing is read or converted any more."""

        def __init__(self, batch: Any, on_device: bool):
            self._batch, self._on_device = batch, on_device

        def get_numpy_iterator(self) -> Iterator[Any]:
            while True:
                yield self._batch

        def get_jax_iterator(self) -> Iterator[Any]:
            import jax

            on_device = jax.tree.map(jax.numpy.asarray, self._batch)
            while True:
                yield on_device if self._on_device else jax.tree.map(jax.numpy.asarray, self._batch)

        def get_tf_dataset(self) -> Any:
            import tensorflow as tf

            # Of equal batches it is no matter how many are made ahead.
            return tf.data.Dataset.from_tensors(self._batch).cache().repeat()

        def get_torch_dataloader(self) -> Any:
            from keras.src.backend.torch.core import convert_to_tensor

            def placed() -> Any:
                return keras.tree.map_structure(convert_to_tensor, self._batch)

            once, again = placed(), self._on_device

            class Repeated:
                def __iter__(self) -> Iterator[Any]:
                    while True:
                        yield once if again else placed()

            return Repeated()

        @property
        def num_batches(self) -> None:
            return None

        @property
        def batch_size(self) -> int:
            return len(keras.tree.flatten(self._batch)[0])

        @property
        def has_partial_batch(self) -> bool:
            return False

        @property
        def partial_batch_size(self) -> None:
            return None

    return RepeatedBatch


def repeated(batch: Any, on_device: bool = True) -> Any:
    """A data adapter of one batch of NumPy arrays that never ends; `on_device`, or copied there each time."""
    return _repeated_class()(batch, on_device)
