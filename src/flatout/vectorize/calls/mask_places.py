"""Indices of what a mask selects: `np.where(mask)[0]`, `torch.nonzero(mask)`, `tf.where(mask)`, and what is read there.

All indices stand for them, with the mask for which of these exist; an array that is read there is that array, masked.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from flatout.pysource.library_functions import library_of
from flatout.vectorize.arrays.algebra import cast
from flatout.vectorize.arrays.indexing import positions, select
from flatout.vectorize.arrays.lifted_values import Items, Known, Places, Refused, Tensor, WrongRank
from flatout.vectorize.arrays.lifting import Lifting
from flatout.vectorize.arrays.shaping import tensor

FUNCTIONS = ("where", "nonzero", "flatnonzero", "argwhere")
# They make one row of a column of indices, or change its type.
_FLATTENING = ("squeeze", "reshape", "ravel", "view", "flatten")
_SAME = ("cast", "convert_to_tensor", "to", "long", "int", "identity", "stop_gradient", "cpu", "numpy", "detach")


def places_of(lift: Lifting, path: str, condition: Any, kwargs: dict[str, Any]) -> Any:
    """What a library gives for the places where a condition holds."""
    mask = tensor(lift, condition)
    mask = mask if mask.kind == "bool" else cast(lift, mask, "bool")
    if mask.valid is not None or mask.is_loose:
        raise Refused("The places of a selection of a selection.", "FO108")
    if not mask.rank:
        raise WrongRank("The places of a number.")
    lift.changes.add("FO108")
    name, library = path.rpartition(".")[2], library_of(path)
    as_tuple = kwargs.get("as_tuple")
    if name == "flatnonzero":
        return along(lift, mask)
    is_column = name == "argwhere" or library == "tensorflow" or (library == "torch" and name == "nonzero")
    if is_column and not (isinstance(as_tuple, Known) and as_tuple.value):
        return Places(mask)
    if mask.rank == 1:
        return Items((along(lift, mask),))
    return Items(tuple(Places(mask, dimension) for dimension in range(mask.rank)))


def along(lift: Lifting, mask: Tensor) -> Tensor:
    """The indices where a mask of one dimension holds."""
    if mask.rank != 1:
        raise WrongRank("The places of a mask of several dimensions are used as one row.")
    (axis,) = mask.inner
    return replace(positions(lift, axis), inner=(axis,), valid=replace(mask, inner=()))


def function_of_places(lift: Lifting, name: str, args: list[Any], kwargs: dict[str, Any]) -> Any:
    """A function that is given the places of a mask."""
    if name in _FLATTENING and isinstance(args[0], Places):
        return along(lift, args[0].mask)
    if name in _SAME and isinstance(args[0], Places):
        return args[0]
    if name == "gather_nd" and len(args) == 2 and isinstance(args[1], Places) and not kwargs:
        return select(lift, tensor(lift, args[0]), 0, args[1].mask)
    raise Refused(f"The places of a mask are used by {name}().", "FO108")


def picked_places(lift: Lifting, of: Places, items: list[Any]) -> Any:
    """`places[:, 0]`."""
    is_whole = len(items) == 2 and isinstance(items[0], slice) and items[0] == slice(None)
    if of.dimension is not None or not is_whole or not isinstance(items[1], Known):
        raise Refused("The places of a mask are indexed.", "FO108")
    if of.mask.rank == 1:
        return along(lift, of.mask)
    return Places(of.mask, int(items[1].value))


def selects_at(items: list[Any]) -> Tensor | None:
    """The mask of `a[rows, columns]`, where these are its places, one for each of its dimensions."""
    if not items or not all(isinstance(item, Places) for item in items):
        return None
    mask: Tensor = items[0].mask
    is_all = [item.dimension for item in items] == list(range(mask.rank))
    return mask if is_all and all(item.mask is mask for item in items) else None
