"""The arguments of a call: by name, with Keras' defaults, with arrays for paths and frames, validation split off."""

from __future__ import annotations

import functools
import inspect
from typing import Any

import numpy as np

from flatout.base.when_used import tree
from flatout.data.sources.resolve import resolve
from flatout.seam import stock_methods as stock
from flatout.seam.adapters import train_validation_split


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
    given = [call.get(name) for name in names]
    arrays = resolve(model, *given)
    changes = {name: new for name, new, old in zip(names, arrays, given, strict=False) if new is not old}
    data = call.get("validation_data")
    if isinstance(data, (tuple, list)) and 2 <= len(data) <= 3:
        arrays = resolve(model, *data)[: len(data)]
        if any(new is not old for new, old in zip(arrays, data, strict=True)):
            changes["validation_data"] = tuple(arrays)
    return {**call, **changes} if changes else call


def split_off_validation(call: dict[str, Any]) -> dict[str, Any]:
    """The arguments of fit with `validation_split` taken off the training data, as Keras takes it off."""
    if not call["validation_split"] or call["validation_data"] is not None:
        return call
    arrays = (call["x"], call["y"], call["sample_weight"])
    # Keras would read rows of files to split them: it splits as many zeros, which take no memory.
    zeros = tree.map_structure(lambda leaf: np.broadcast_to(np.int8(0), len(leaf)) if _in_parts(leaf) else leaf, arrays)
    train, held_out = train_validation_split(zeros, call["validation_split"])
    x, y, sample_weight = tree.map_structure(
        lambda leaf, part: leaf.part(0, len(part)) if _in_parts(leaf) else part, arrays, train
    )
    validation_data = tree.map_structure(
        lambda leaf, part: leaf.part(len(leaf) - len(part), len(leaf)) if _in_parts(leaf) else part, arrays, held_out
    )
    return {**call, "x": x, "y": y, "sample_weight": sample_weight, "validation_data": validation_data}


def _in_parts(leaf: Any) -> bool:
    """Whether an array lies in files and can be cut without reading them."""
    return hasattr(leaf, "part") and hasattr(leaf, "paths")
