"""Entries of x: those that a model takes, those for its loss alone, and those whose keys can be checked on the host.

Keras matches a dict of inputs by the sorted position of its keys, so that an entry that the model does not know can
silently feed it the wrong array (measured on all backends). A model whose loss reads x, or that uses tables, therefore
gets its own entries alone.
"""

from __future__ import annotations

import functools
import operator
import weakref
from typing import Any

import numpy as np

from flatout.base.errors import TableError
from flatout.base.when_used import keras, tree
from flatout.seam.adapters import arrays_behind
from flatout.seam.compiled_parts import compile_loss, function_of, given_loss
from flatout.seam.layers import inputs_structure
from flatout.tables.columns.keys import INT32

from .table_state import tables_of

# By what `compile` made: entries of x that the user declared as not the model's, or None if no loss reads x.
_declared: weakref.WeakKeyDictionary[Any, tuple[Any, ...] | None] = weakref.WeakKeyDictionary()


def for_model(model: Any, x: Any) -> Any:
    """The part of x that a model takes; x itself unless its loss reads x or uses tables."""
    if not isinstance(x, (dict, list, tuple)):
        return x
    keys = _declared_keys(model)
    if keys is None and not tables_of(model):
        return x
    struct = inputs_structure(model)
    return _of_dict(model, x, struct, keys or ()) if isinstance(x, dict) else _of_sequence(x, struct, keys or ())


def _declared_keys(model: Any) -> tuple[Any, ...] | None:
    compiled = compile_loss(model)
    if compiled is None:
        return None
    if compiled not in _declared:
        losses = map(function_of, tree.flatten(given_loss(model)))
        readers = [function for function in losses if getattr(function, "flatout_takes_x", False)]
        _declared[compiled] = tuple(key for reader in readers for key in reader.flatout_keys) if readers else None
    return _declared[compiled]


def _of_dict(model: Any, x: dict[Any, Any], struct: Any, keys: tuple[Any, ...]) -> Any:
    if isinstance(struct, dict):
        return {name: x[name] for name in struct} if set(struct) < set(x) else x
    rest = {name: value for name, value in x.items() if name not in keys}
    if struct is None and not isinstance(model, keras.Sequential):
        return rest
    tensors = [] if struct is None else list(struct) if isinstance(struct, (list, tuple)) else [struct]
    names = [getattr(tensor, "name", None) for tensor in tensors]
    if names and set(names) <= set(x):
        chosen = [x[name] for name in names]
    elif len(rest) == 1 and len(tensors) <= 1:
        chosen = list(rest.values())
    elif len(x) == len(tensors):
        return x
    else:
        raise TableError(
            f"x has the entries {sorted(map(str, x))}, and the model {model.name!r} takes {names or 'one input'}: it "
            "is not clear which are for the loss alone. Name the inputs (`keras.Input(..., name=...)`) after their "
            "entries, or declare the others: `@flatout.loss(keys=['sample_id'])`."
        )
    return chosen[0] if len(chosen) == 1 and not isinstance(struct, (list, tuple)) else chosen


def _of_sequence(x: Any, struct: Any, keys: tuple[Any, ...]) -> Any:
    if keys:
        rest = [value for number, value in enumerate(x) if number not in keys]
    elif struct is None:
        return x
    else:
        rest = list(x[: len(struct) if isinstance(struct, (dict, list, tuple)) else 1])
    if len(rest) == len(x):
        return x
    if len(rest) == 1 and not isinstance(struct, (dict, list, tuple)):
        return rest[0]
    return type(x)(rest)


def check_adapter(model: Any, adapter: Any) -> None:
    """Check the arrays behind one of Keras' data adapters, if it has arrays."""
    arrays = arrays_behind(adapter)
    if arrays is not None:
        check_inputs(model, keras.utils.unpack_x_y_sample_weight(arrays)[0])


def check_inputs(model: Any, x: Any) -> None:
    """Check on the host, before step 0, the arrays in x that the loss of a model was seen to look up."""
    for table in tables_of(model):
        for paths in table.entries:
            arrays = [_entry(x, path) for path in paths]
            if all(isinstance(array, np.ndarray) for array in arrays):
                _check(table, [array.reshape(-1) for array in arrays])


def _check(table: Any, arrays: list[np.ndarray]) -> None:
    for name, array in zip(table.key, arrays, strict=False):
        too_large = array.dtype.kind in "iu" and len(array) and (array.min() < INT32.min or array.max() > INT32.max)
        if too_large and keras.config.backend() == "jax":
            raise TableError(
                f"The keys {name!r} in x need more than 32 bits, which jax cuts off. Received: {int(array.max())}. Put "
                "`table.codes(values)` into x in their place."
            )
    if table.raises:
        table.index.check_looked_up(arrays)


def _entry(x: Any, path: tuple[Any, ...]) -> Any:
    try:
        return functools.reduce(operator.getitem, path, x)
    except (KeyError, IndexError, TypeError):
        return None
