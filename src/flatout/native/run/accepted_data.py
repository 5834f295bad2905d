"""The data of a call as kernels take them, and why others do not fit."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from keras import ops

from flatout.base.errors import Refusal, reason
from flatout.engines.contract import Structure, Task
from flatout.native.model.network import Network

from .state_transfer import on_host


def unpacked(data: Structure, task: Task) -> list[Any]:
    """x, y and sample weights of `(x, y, sample_weight)`, each a single array or None."""
    parts = list(data) if isinstance(data, tuple | list) else [data]
    leaves = [*parts, None, None, None][:3]
    if task == "predict":
        leaves[1:] = None, None
    for number, name in enumerate(("x", "y", "sample_weight")):
        part = leaves[number]
        if isinstance(part, tuple | list) and len(part) == 1:
            leaves[number] = part = part[0]
        if isinstance(part, Mapping | tuple | list):
            raise Refusal(reason("native_data", f"{name} is a structure of arrays"))
    return leaves


def problem_with(network: Network, x: Any, y: Any, weight: Any = None) -> str | None:
    """Why data do not fit a network; None if they do."""
    if x.shape[0] == 0:
        return "there are no rows"
    size = math.prod(x.shape[1:])
    if size != network.features:
        return f"x has rows of {size} values, the model takes rows of {network.features} values"
    if weight is not None and tuple(weight.shape[1:]) not in ((), (1,)):
        return f"sample weights have the shape {tuple(weight.shape)}, not (rows,)"
    if network.loss is None:
        return None
    if y is None:
        return "there is no y"
    shape, width = tuple(y.shape), network.outputs
    if network.has_sparse_targets:
        if shape[1:] not in ((), (1,)):
            return f"labels have the shape {shape}, not (rows,)"
        low, high = _range(y)
        if low < 0 or high >= width:
            return f"labels go from {low:g} to {high:g}, with {width} classes"
    elif shape[1:] != (width,) and not (width == 1 and shape[1:] == ()):
        return f"targets have the shape {shape}, not {('rows', width)}"
    return None


def _range(y: Any) -> tuple[float, float]:
    if isinstance(y, np.ndarray):
        return float(y.min()), float(y.max())
    return float(on_host(ops.min(y))), float(on_host(ops.max(y)))
