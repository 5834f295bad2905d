"""Which entries of x a model takes: the others travel with the rows for the loss, and are kept from the model.

Keras matches a dict of inputs by the sorted position of its keys, so that an entry that the model does not know can
silently feed it the wrong array (measured on all backends). A model whose loss reads x, or that uses tables, therefore
gets its own entries alone.
"""

from __future__ import annotations

import weakref
from dataclasses import dataclass
from typing import Any

from flatout.base.errors import TableError
from flatout.seam.compiled_parts import compile_loss, given_loss
from flatout.seam.layers import inputs_structure

from .table_state import tables_of


@dataclass(frozen=True)
class _Use:
    """What a model's compiled loss does with x; `keys` are entries that the user declared as not the model's."""

    compile_loss: Any
    reads_x: bool
    keys: tuple[Any, ...]


_known: weakref.WeakKeyDictionary[Any, _Use] = weakref.WeakKeyDictionary()


def for_model(model: Any, x: Any) -> Any:
    """The part of x that a model takes; x itself unless its loss reads x or uses tables.

    Raises:
        TableError: Nobody can say which entries are the model's.
    """
    if not isinstance(x, (dict, list, tuple)):
        return x
    use = _use_of(model)
    if not use.reads_x and not tables_of(model):
        return x
    struct = inputs_structure(model)
    if isinstance(x, dict):
        return _of_dict(model, x, struct, use.keys)
    return _of_sequence(x, struct, use.keys)


def _use_of(model: Any) -> _Use:
    from keras import tree

    compiled = compile_loss(model)
    use = _known.get(model)
    if use is None or use.compile_loss is not compiled:
        losses = tree.flatten(given_loss(model))
        functions = [getattr(loss, "fn", loss) for loss in losses]
        readers = [function for function in functions if getattr(function, "flatout_takes_x", False)]
        keys = tuple(key for reader in readers for key in reader.flatout_keys)
        use = _known[model] = _Use(compiled, bool(readers), keys)
    return use


def _of_dict(model: Any, x: dict[Any, Any], struct: Any, keys: tuple[Any, ...]) -> Any:
    if isinstance(struct, dict):
        return {name: x[name] for name in struct} if set(struct) < set(x) else x
    rest = {name: value for name, value in x.items() if name not in keys}
    if struct is None and not _is_sequential(model):
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


def _is_sequential(model: Any) -> bool:
    import keras

    return isinstance(model, keras.Sequential)
