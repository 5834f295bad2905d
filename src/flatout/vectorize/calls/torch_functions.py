"""What torch alone has: functions that give two arrays."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from flatout.vectorize.arrays.lifted_values import Host, Items, Known, Refused, Tensor
from flatout.vectorize.arrays.lifting import Lifting
from flatout.vectorize.arrays.shaping import tensor

from . import operations

_PLACES = {"max": "argmax", "min": "argmin", "sort": "argsort"}
_LARGER = {"max": "maximum", "min": "minimum"}


def pair(lift: Lifting, name: str, args: list[Any], kwargs: Mapping[str, Any]) -> Any:
    """`torch.max(x, dim)`, `torch.min(x, dim)`, `torch.sort(x)`: values and places; None: it gives one array.

    `torch.max(x, y)` is the larger of each two entries.

    Args:
        lift: What is known of the function.
        name: In `keras.ops`.
        args: Of the call.
        kwargs: By the names of `keras.ops`.
    """
    if name in _LARGER and len(args) == 2 and isinstance(args[1], Tensor) and not kwargs:
        return operations.apply(lift, _LARGER[name], args, {})
    if name not in _PLACES or any(isinstance(value, Tensor) for value in args[1:]):
        return None
    words = dict(kwargs)
    if len(args) > 1:
        words["axis"] = args[1]
    if len(args) > 2:
        words["keepdims" if name != "sort" else "descending"] = args[2]
    if name != "sort" and "axis" not in words:
        return None
    if not all(isinstance(value, (Known, Host)) for value in words.values()):
        raise Refused(f"torch.{name} with arguments that depend on the data.")
    x = tensor(lift, args[0] if args else words.pop("x"))
    return Items(tuple(operations.apply(lift, one, [x], dict(words)) for one in (name, _PLACES[name])))
