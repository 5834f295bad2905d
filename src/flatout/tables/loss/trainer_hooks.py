"""The places in Keras' trainer where tables and losses that read x come in; nothing happens for models without them.

`install` wraps eight methods, once, when the first table or `@flatout.loss` is made. Each wrapper calls Keras' own
method and changes neither its arguments nor its result, but for entries of x that are kept from the model.
"""

from __future__ import annotations

import contextlib
import contextvars
import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from flatout.base.when_used import keras
from flatout.seam import patches
from flatout.seam.trainers import COMPUTE_LOSS_OF_STEP, RESULT_OF_EPOCH, SYMBOLIC_BUILD, trainer_base

from .discover import reachable_tables
from .model_inputs import check_adapter, for_model
from .table_state import attach, tables_of


@dataclass(frozen=True)
class StepContext:
    """What a loss or a table can know of its step; `x` has also the entries that are not the model's."""

    model: Any
    x: Any
    training: bool


_current: contextvars.ContextVar[StepContext | None] = contextvars.ContextVar("flatout_step", default=None)


def current_step() -> StepContext | None:
    """The step whose loss is being computed, or None outside of all."""
    return _current.get()


@contextlib.contextmanager
def _inside_step(model: Any, x: Any, training: bool) -> Iterator[None]:
    token = _current.set(StepContext(model, x, training))
    try:
        yield
    finally:
        _current.reset(token)


def install() -> None:
    """Wrap Keras' methods; a second call changes nothing."""
    trainer = trainer_base()
    hooks = (
        (trainer, "compile", _compile),
        (trainer, SYMBOLIC_BUILD, _symbolic_build),
        (trainer, "compute_loss", _compute_loss),
        (trainer, COMPUTE_LOSS_OF_STEP, _compute_loss),
        (trainer, "compute_metrics", _compute_metrics),
        (trainer, RESULT_OF_EPOCH, _result),
        (keras.Model, "stateless_call", _stateless_call),
        (keras.Model, "__call__", _call),
    )
    patches.apply("tables", [patches.Patch(cls, name, around) for cls, name, around in hooks])


def attach_reachable(model: Any) -> None:
    """Make the tables that a model's code can reach part of its state."""
    for table in reachable_tables(model):
        attach(table, model)


def _compile(original: Callable[..., Any], model: Any, *args: Any, **kwargs: Any) -> Any:
    result = original(*args, **kwargs)
    attach_reachable(model)
    return result


def _symbolic_build(original: Callable[..., Any], model: Any, *args: Any, **kwargs: Any) -> Any:
    attach_reachable(model)
    result = original(*args, **kwargs)
    iterator = kwargs.get("iterator", args[0] if args else None)
    check_adapter(model, getattr(iterator, "data_adapter", None))
    return result


def _compute_loss(
    original: Callable[..., Any],
    model: Any,
    x: Any = None,
    y: Any = None,
    y_pred: Any = None,
    sample_weight: Any = None,
    training: bool = True,
) -> Any:
    outer = current_step()
    # An override of `compute_loss` need not hand x on to Keras' own.
    seen = outer.x if x is None and outer is not None and outer.model is model else x
    with _inside_step(model, seen, training):
        return original(x, y, y_pred, sample_weight, training=training)


def _compute_metrics(
    original: Callable[..., Any], model: Any, x: Any, y: Any, y_pred: Any, sample_weight: Any = None
) -> Any:
    with _inside_step(model, x, False):
        return original(x, y, y_pred, sample_weight)


def _result(original: Callable[..., Any], model: Any, logs: Any) -> Any:
    """At the end of an epoch, on the host: the first moment at which counts of the device may be read."""
    for table in tables_of(model):
        table.refuse_missed()
    return original(logs)


def _call(original: Callable[..., Any], model: Any, *args: Any, **kwargs: Any) -> Any:
    if args:
        args = (for_model(model, args[0]), *args[1:])
    return original(*args, **kwargs)


def _stateless_call(
    original: Callable[..., Any],
    model: Any,
    trainable_variables: Any,
    non_trainable_variables: Any,
    *args: Any,
    **kw: Any,
) -> Any:
    return _call(functools.partial(original, trainable_variables, non_trainable_variables), model, *args, **kw)
