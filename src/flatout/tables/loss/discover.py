"""Finds the tables that a model's loss, metrics and overridden methods can reach by the names in their code."""

from __future__ import annotations

import contextlib
import functools
import types
from typing import Any

from flatout.base.when_used import keras
from flatout.pysource.library_functions import code_names
from flatout.seam.compiled_parts import given_loss, given_metrics, given_weighted_metrics

# Code of these packages uses no tables of the user's.
_FOREIGN = frozenset({"keras", "jax", "jaxlib", "tensorflow", "torch", "numpy", "pandas", "polars", "pyarrow", "scipy"})
_FOREIGN |= {"sklearn", "builtins", "flatout"}
_METHODS = ("compute_loss", "compute_metrics", "train_step", "test_step")
_CODE = (types.FunctionType, staticmethod, classmethod, property, functools.partial)
_MOST_ITEMS = 1000


def reachable_tables(model: Any) -> list[Any]:
    """The tables, in the order in which they are met; nothing is run."""
    found: list[Any] = []
    seen: set[int] = set()
    waiting = [given_loss(model), given_metrics(model), given_weighted_metrics(model)]
    methods = (getattr(model, name, None) for name in _METHODS)
    waiting += [method for method in methods if method is not None and not _is_foreign(method)]
    while waiting:
        thing = waiting.pop(0)
        if id(thing) in seen:
            continue
        seen.add(id(thing))
        if getattr(type(thing), "flatout_is_table", False):
            found.append(thing)
        else:
            waiting.extend(_parts(thing))
    return found


def _parts(thing: Any) -> list[Any]:
    """What a thing may use: of an object of the user's, such as a Loss, its attributes and the code of its classes."""
    if isinstance(thing, functools.partial):
        return [thing.func, *thing.args, *thing.keywords.values()]
    if isinstance(thing, types.MethodType):
        return [thing.__func__, *_attributes(thing.__self__, thing.__func__)]
    if isinstance(thing, types.FunctionType):
        return _of_function(thing)
    if isinstance(thing, (staticmethod, classmethod)):
        return [thing.__func__]
    if isinstance(thing, property):
        return [thing.fget]
    if isinstance(thing, (dict, list, tuple, set, frozenset)):
        items = list(thing.values() if isinstance(thing, dict) else thing)
        return items if len(items) <= _MOST_ITEMS else []
    if isinstance(thing, type):
        return [] if _is_foreign(thing) else [value for value in vars(thing).values() if isinstance(value, _CODE)]
    state = vars(thing).values() if hasattr(thing, "__dict__") and _may_hold_tables(thing) else ()
    return [*state, *type(thing).__mro__]


def _of_function(function: types.FunctionType) -> list[Any]:
    wrapped = getattr(function, "__wrapped__", None)
    if _is_foreign(function) and wrapped is None:
        return []
    # In their order in the code: weights are saved by the number of a table.
    names = dict.fromkeys(code_names(function.__code__))
    parts: list[Any] = [wrapped, *(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()]
    for cell in function.__closure__ or ():
        with contextlib.suppress(ValueError):  # Not filled yet.
            parts.append(cell.cell_contents)
    for name in names:
        value = function.__globals__.get(name)
        if not isinstance(value, types.ModuleType):
            parts.append(value)
        elif value.__name__.partition(".")[0] not in _FOREIGN:
            parts.extend(vars(value)[attribute] for attribute in names if attribute in vars(value))
    return parts


def _attributes(owner: Any, function: Any) -> list[Any]:
    """What a method reads of its object; the methods that it calls among them."""
    state = getattr(owner, "__dict__", {})
    parts = []
    for name in dict.fromkeys(code_names(function.__code__)):
        if name in state:
            parts.append(state[name])
        elif isinstance(value := getattr(type(owner), name, None), types.FunctionType) and not _is_foreign(value):
            parts.append(types.MethodType(value, owner))
    return parts


def _may_hold_tables(thing: Any) -> bool:
    if isinstance(thing, keras.Model):
        return False
    return isinstance(thing, (keras.Loss, keras.metrics.Metric)) or not _is_foreign(type(thing))


def _is_foreign(thing: Any) -> bool:
    return str(getattr(thing, "__module__", None) or "").partition(".")[0] in _FOREIGN
