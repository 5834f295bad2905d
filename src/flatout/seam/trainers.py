"""Keras' trainer of the backend in use: its module, its class, what a model as a trainer knows and builds."""

from __future__ import annotations

import importlib
import inspect
from typing import Any

from flatout.base.when_used import keras

from .compiled_parts import compile_loss, compile_metrics
from .layers import all_layers

# Methods of the trainer that have no public name: what builds a model on a first batch, what computes the loss inside
# a step, and what makes the logs of an epoch.
SYMBOLIC_BUILD = "_symbolic_build"
COMPUTE_LOSS_OF_STEP = "_compute_loss"
RESULT_OF_EPOCH = "_get_metrics_result_or_logs"


def trainer_module(backend: str) -> Any:
    """Keras' trainer module of a backend."""
    return importlib.import_module(f"keras.src.backend.{backend}.trainer")


def trainer_class() -> type:
    """The backend's trainer: the class of `keras.Model`'s ancestors that defines `fit` itself.

    Patching it, not `keras.Model`, also reaches classes that derive from the trainer alone, and leaves
    `keras.Model.fit` free for tools that wrap it (mlflow's autolog does): they stay outside of us.
    """
    return next(cls for cls in keras.Model.__mro__[1:] if "fit" in vars(cls))


def trainer_base() -> type:
    """The trainer that those of all backends derive from."""
    from keras.src.trainers.trainer import Trainer

    return Trainer  # type: ignore[no-any-return]


def check_compiled(model: Any, method: str) -> None:
    """Raise Keras' own error for a model that was not compiled."""
    model._assert_compile_called(method)


def runs_eagerly(model: Any) -> bool:
    """Whether a model was compiled with `run_eagerly=True`, whatever the backend."""
    return bool(getattr(model, "_run_eagerly", False))


def is_under_strategy(model: Any) -> bool:
    """Whether a model was made under one of TensorFlow's distribution strategies."""
    return getattr(model, "_distribute_strategy", None) is not None


def is_data_parallel(model: Any) -> bool:
    """Whether Keras' torch trainer shares a model's steps with other processes, as it does since 3.16."""
    if not hasattr(model, "ddp_model"):
        return False
    from torch import distributed

    return distributed.is_available() and bool(distributed.is_initialized())


def strategy_arguments(model: Any) -> dict[str, Any]:
    """TensorFlow's distribution strategy, as its epoch iterator wants it; nothing on other backends."""
    return {"distribute_strategy": model.distribute_strategy} if hasattr(model, "distribute_strategy") else {}


def first_epoch(model: Any, initial_epoch: int) -> int:
    """The epoch that `fit` begins with: that which a `BackupAndRestore` has left, or as asked for."""
    return int(model._initial_epoch or initial_epoch)


def put_first_epoch(model: Any, epoch: int | None) -> None:
    """Have `first_epoch` find what a `BackupAndRestore` has left in another process."""
    model._initial_epoch = epoch


def validates_after(model: Any, epoch: int, validation_freq: Any) -> bool:
    """Whether `fit` validates after an epoch."""
    return bool(model._should_eval(epoch, validation_freq))


def metrics_in_order(model: Any, logs: dict[str, Any]) -> Any:
    """Logs as `evaluate` returns them without `return_dict`: a list, or a single number."""
    return model._flatten_metrics_in_order(logs)


def step_function(model: Any, task: str) -> Any:
    """What Keras made of the model's step for "train", "test" or "predict"; None before, and again after `compile`."""
    return getattr(model, f"{task}_function")


def check_step_function(model: Any, task: str) -> None:
    """Raise Keras' own error where a callback has taken the function of a running fit away, as `compile` does."""
    if step_function(model, task) is None:
        raise TypeError("'NoneType' object is not callable")


def takes_batch_before_step(model: Any, task: str) -> bool:
    """Whether TensorFlow's trainer takes a batch, whose length is known then, before it calls the graph of a step."""
    function = step_function(model, task)
    is_new = "get_next_as_optional" in function.__code__.co_names  # Since 3.16 (keras#23179).
    return is_new and model.steps_per_execution == 1


def is_made_by_torch_compile(function: Any) -> bool:
    """Whether a step function is what `torch.compile` made of Keras' own."""
    return hasattr(function, "_torchdynamo_orig_callable")


def stock_step(model: Any, task: str) -> Any:
    """The step inside Keras' own function of a task, as jax or TensorFlow compiles it, if the model is compiled.

    TensorFlow's takes a batch, and that of predict a list of them; jax' takes the state, too.
    """
    step = step_function(model, task)
    for name in ("_step_function", "one_step_on_data", "step_func", "step_function"):
        if inspect.isfunction(step):
            step = inspect.getclosurevars(step).nonlocals.get(name, step)
    return step


def stock_has_traced(model: Any, task: str) -> bool:
    """Whether stock Keras has compiled its own function of a step."""
    step = stock_step(model, task)
    count = getattr(step, "_cache_size", getattr(step, "experimental_get_tracing_count", None))
    return count is not None and count() > 0


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
