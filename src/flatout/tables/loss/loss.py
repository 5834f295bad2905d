"""`@flatout.loss`: a loss that also receives x, this batch's inputs."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from typing import Any

from flatout.base.errors import TableError

from .trainer_hooks import current_step, install

_FROM_STEP: Any = object()


def loss(function: Callable[..., Any] | None = None, *, keys: Sequence[Any] = ()) -> Any:
    """Let a loss (or a metric that is a function) receive this batch's inputs beside `y_true` and `y_pred`.

    Entries of x that the model does not take as inputs are kept from it: keys of tables and anything else that a loss
    needs travel there, are shuffled with the rows, and never touch the metrics. `y_true` arrives as in any Keras loss,
    cast to float32; x arrives as it is.

    Args:
        function: `loss(y_true, y_pred, x)`.
        keys: Entries of x (names of a dict, positions of a tuple) that are not for the model. They need not be given
            where the model says which inputs it takes: where it is functional with named inputs.

    Returns:
        A function for `compile`. Called with two arguments by Keras it takes x from the step; it can be called with
        three by hand.

    Example:
        >>> import flatout, keras, numpy as np
        >>> prices = flatout.Table({"item": [101, 205], "price": [2.0, 3.0]}, key="item")
        >>> @flatout.loss
        ... def weighted(y_true, y_pred, x):
        ...     return prices.at(x["item"]).price[:, None] * keras.ops.square(y_true - y_pred)
        >>> features = keras.Input((4,), name="features")
        >>> model = keras.Model({"features": features}, keras.layers.Dense(1)(features))
        >>> model.compile("sgd", weighted)
        >>> x = {"features": np.ones((8, 4)), "item": np.array([101, 205] * 4)}
        >>> history = flatout.fit(model, x, np.ones((8, 1)), verbose=0)
    """
    if function is None:
        return functools.partial(loss, keys=keys)
    if not callable(function):
        raise TypeError(f"`flatout.loss` decorates a function. Received: a {type(function).__name__}.")
    install()
    takes_x = _takes_x(function)

    @functools.wraps(function)
    def with_inputs(y_true: Any, y_pred: Any, x: Any = _FROM_STEP) -> Any:
        if not takes_x:
            return function(y_true, y_pred)
        if x is _FROM_STEP:
            step = current_step()
            if step is None:
                raise TableError(
                    f"The loss {getattr(function, '__name__', function)!r} was called without x outside of a step. "
                    "Pass it as the third argument, or compile a model with this loss."
                )
            x = step.x
        result = function(y_true, y_pred, x)
        _refuse_blow_up(result, y_pred, function)
        return result

    marks: Any = with_inputs
    marks.flatout_takes_x = takes_x
    marks.flatout_keys = (keys,) if isinstance(keys, str) else tuple(keys)
    return with_inputs


def _takes_x(function: Callable[..., Any]) -> bool:
    parameters = inspect.signature(function).parameters
    if "x" in parameters:
        return True
    positional = [p for p in parameters.values() if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    return len(positional) > 2 and positional[2].default is inspect.Parameter.empty


def _refuse_blow_up(result: Any, y_pred: Any, function: Any) -> None:
    """Raise if a (B,) met a (B, 1): the loss of each sample would hold that of all samples."""
    shape: tuple[Any, ...] = tuple(getattr(result, "shape", ()))
    predicted: tuple[Any, ...] = tuple(getattr(y_pred, "shape", ()))
    if len(shape) != 2 or len(predicted) not in (1, 2) or (len(predicted) == 2 and predicted[1] != 1):
        return
    if shape[0] == shape[1] == predicted[0] and shape[0] != 1:
        raise TableError(
            f"The loss {getattr(function, '__name__', function)!r} returned an array of shape {shape} for "
            f"predictions of shape {predicted}: a (B,) array, such as a column of a table, met a (B, 1) one and "
            "both were repeated. Give the column an axis: `row.weight[:, None]`, or take the predictions' away."
        )
