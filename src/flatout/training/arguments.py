"""The arguments of a call: by name, with Keras' defaults, and with arrays in the place of paths and frames."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Sequence
from typing import Any

from flatout.data.sources.resolve import resolve
from flatout.seam import stock_methods as stock


def bound(method: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    """The arguments by name, with Keras' own defaults."""
    try:
        given = _signature(method).bind(*args, **kwargs)
    except TypeError as error:
        raise TypeError(f"{stock.original(method).__qualname__}() {error}") from None
    given.apply_defaults()
    call = dict(given.arguments)
    extra = call.pop("kwargs", {})
    if extra:
        raise ValueError(f"Arguments not recognized: {extra}")
    return call


@functools.cache
def _signature(method: str) -> inspect.Signature:
    parameters = list(inspect.signature(stock.original(method)).parameters.values())[1:]
    return inspect.Signature(parameters)


def resolved(method: str, model: Any, call: dict[str, Any]) -> dict[str, Any]:
    """The call with arrays in the place of paths, frames and names of columns; the same one if there are none."""
    names = ("x",) if method == "predict" else ("x", "y", "sample_weight")
    changes = _changes(model, names, [call.get(name) for name in names])
    data = call.get("validation_data")
    if isinstance(data, (tuple, list)) and 2 <= len(data) <= 3:
        changed = _changes(model, names, data)
        if changed:
            changes["validation_data"] = tuple(
                changed.get(name, value) for name, value in zip(names, data, strict=False)
            )
    return {**call, **changes} if changes else call


def _changes(model: Any, names: Sequence[str], values: Sequence[Any]) -> dict[str, Any]:
    arrays = resolve(model, *values)
    before = (*values, None, None)
    return {name: new for name, new, old in zip(names, arrays, before, strict=False) if new is not old}
