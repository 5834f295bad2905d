"""Calls: the user's functions are read in place, array functions lifted, constants computed, the rest refused."""

from __future__ import annotations

import ast
import functools
import logging
import sys
import types
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from flatout.pysource.library_functions import is_random, library_of, may_define_gradient, path_of
from flatout.pysource.spellings import canonical
from flatout.seam.keras_names import is_loss_wrapper, public_path
from flatout.vectorize.arrays.algebra import as_constant, on_host, opened, whole
from flatout.vectorize.arrays.expression_graph import FUNCTIONS
from flatout.vectorize.arrays.lifted_values import (
    Items,
    Known,
    Local,
    Member,
    Method,
    Mutable,
    Partial,
    Refused,
    Sum,
    Tensor,
)
from flatout.vectorize.arrays.lifting import Lifting
from flatout.vectorize.loops.loop_totals import join, recurrence

from . import methods
from .mapped_calls import mapped_call
from .operations import OPERATIONS, array_function
from .reader import Reader

# What a loop carries may go through these: how it grows.
_CARRYING = {"maximum": "max", "minimum": "min", "max": "max", "min": "min", "add": "sum", "multiply": "prod"}
# And these ask about it.
_COMPARING = {FUNCTIONS[symbol]: symbol for symbol in ("<", "<=", ">", ">=")}
# Numbers of Python that these make are whole.
_TO_WHOLE = ("math.floor", "math.ceil", "math.trunc", "builtins.round")
_OF_OTHERS = ("pandas", "sklearn", "scipy", "posixpath", "ntpath", "genericpath")


def call(run: Reader, node: ast.Call, scope: Any) -> Any:
    """The value of a call."""
    function = run.expression(node.func, scope)
    path = path_to(function)
    is_read = _is_read(function)
    args = [value for arg in node.args for value in _positional(run, arg, scope, is_read)]
    kwargs = {name: value for word in node.keywords for name, value in _by_name(run, word, scope, is_read)}
    for value in (*args, *kwargs.values()):
        if isinstance(value, Sum) and not is_read and canonical(path or "") not in (*_CARRYING, *_COMPARING, "float"):
            raise recurrence(value)
    return apply(run, function, path, args, kwargs)


def _is_read(function: Any) -> bool:
    """Whether a function is the user's own, whose body is read in place of the call."""
    if isinstance(function, Partial):
        return _is_read(function.function)
    if isinstance(function, Method) and isinstance(function.of, (Mutable, Member)):
        return True
    if isinstance(function, Known) and isinstance(function.value, type):
        root = function.value.__module__.partition(".")[0]
        return library_of(root) is None and root not in (*_OF_OTHERS, *sys.stdlib_module_names)
    if isinstance(function, Method) and isinstance(function.of, Known):
        return _is_users(getattr(getattr(function.of.value, function.name, None), "__func__", None))
    return isinstance(function, Local) or (isinstance(function, Known) and _is_users(function.value))


def _positional(run: Reader, node: ast.expr, scope: Any, is_read: bool) -> list[Any]:
    """What an argument gives a function: one value, or, with a star, those of a list of known length."""
    if not isinstance(node, ast.Starred):
        return [run.reference(node, scope) if is_read else run.expression(node, scope)]
    several = opened(run.lift, run.expression(node.value, scope))
    if isinstance(several, Items):
        return list(several.values)
    raise Refused("A call with a varying number of arguments.")


def _by_name(run: Reader, word: ast.keyword, scope: Any, is_read: bool) -> list[tuple[str, Any]]:
    value = run.reference(word.value, scope) if is_read and word.arg else run.expression(word.value, scope)
    if word.arg is not None:
        return [(word.arg, value)]
    if isinstance(value, Known) and isinstance(value.value, dict) and all(isinstance(key, str) for key in value.value):
        return list(_entries(run.lift, value).items())
    raise Refused("A call with a varying number of arguments.")


def path_to(function: Any) -> str | None:
    """The dotted name of a function of a library; None: it is none."""
    if not isinstance(function, Known):
        return None
    path = function.path or path_of(function.value)
    return None if path is None else public_path(path.replace("tensorflow._api.v2.", "tensorflow."))


def apply(run: Reader, function: Any, path: str | None, args: list[Any], kwargs: dict[str, Any]) -> Any:
    """A function, whatever it is, on lifted arguments."""
    if isinstance(function, Local):
        return run.function(function, args, kwargs)
    if isinstance(function, Method) and isinstance(function.of, (Mutable, Member)):
        return run.heap_method(function.of, function.name, args, kwargs)
    if isinstance(function, Method):
        return methods.method(run, function.of, function.name, args, kwargs)
    if isinstance(function, Known) and isinstance(function.value, functools.partial):
        function = _opened(run.lift, function)
    if isinstance(function, Partial):
        held = function.function
        return apply(run, held, path_to(held), [*function.args, *args], {**function.kwargs, **kwargs})
    if not isinstance(function, Known):
        raise Refused("Something is called that is no function.")
    if is_random(path):
        raise Refused(
            f"Random numbers are drawn ({path}): one draw for the whole batch would change their number and order.",
            "FO304",
        )
    if may_define_gradient(function.value):
        raise Refused("A function has a gradient that the user defined: it cannot be derived from the body.", "FO101")
    carried = [value for value in args if isinstance(value, Sum)]
    if carried and not _is_users(function.value):
        return _joined(run, str(path), args)
    made = run.made_object(function, path, args, kwargs)
    if made is not None:
        return made
    handler = run.handlers.get(path or "")
    if handler is not None:
        return handler(run, args, kwargs)
    held = function.value
    if is_loss_wrapper(held) and getattr(held, "reduction", None) == "sum_over_batch_size":
        return mapped_call(run.lift, function, f"keras.losses.{type(function.value).__name__}", args, kwargs)
    library = library_of(path)
    is_array = library not in (None, "numpy", "math", "builtins") and canonical(str(path)) in OPERATIONS
    is_static = all(isinstance(as_constant(run.lift, value), Known) for value in (*args, *kwargs.values()))
    if is_static and not _is_users(function.value) and not is_array:
        return methods.constant(run, function, path, args, kwargs)
    if library == "math" or library == "numpy":
        args = [on_host(run.lift, value) for value in args]
        kwargs = {name: on_host(run.lift, value) for name, value in kwargs.items()}
    if library is not None and path is not None:
        made = array_function(run.lift, path, args, kwargs)
        made = mapped_call(run.lift, function, path, args, kwargs) if made is None else made
        if path in _TO_WHOLE and len(args) == 1 and isinstance(made, Tensor) and made.is_host and not made.rank:
            run.lift.learn("whole", args[0])
            return whole(run.lift, made)
        return replace(made, is_host=True) if library == "numpy" and isinstance(made, Tensor) else made
    if _is_users(function.value):
        if hasattr(function.value, "__wrapped__"):
            name = function.value.__name__
            raise Refused(f"{name!r} is changed by a decorator: a gradient may be defined there.")
        return run.users_function(function.value, args, kwargs)
    if path is None and isinstance(getattr(type(function.value), "__call__", None), types.FunctionType):  # noqa: B004
        return methods.method(run, function, "__call__", args, kwargs)
    raise Refused(f"A call to {path or 'an unknown function'}, which has no array form here.", "FO205")


def _opened(lift: Lifting, function: Known) -> Partial:
    """A `functools.partial` that was made outside the loss."""
    held, args, words = (
        Known(getattr(function.value, name), lift.graph.make("attribute", function.node, name))
        for name in ("func", "args", "keywords")
    )
    return Partial(held, opened(lift, args).values, _entries(lift, words))


def _entries(lift: Lifting, table: Known) -> dict[str, Known]:
    """The entries of a dict that is known now, with how the source says each."""
    graph = lift.graph
    return {key: Known(item, graph.index(table.node, (graph.const(key),))) for key, item in table.value.items()}


def _is_users(function: Any) -> bool:
    return (
        isinstance(function, types.FunctionType)
        and library_of(function.__module__ or "") is None
        and ((function.__module__ or "").partition(".")[0] not in _OF_OTHERS)
    )


def _joined(run: Reader, path: str, args: list[Any]) -> Any:
    name = canonical(path)
    if name == "float":
        return args[0]
    if name in _COMPARING and len(args) == 2:
        return run.compared(_COMPARING[name], *args)
    how = _CARRYING.get(name)
    if how is None or len(args) != 2 or all(isinstance(value, Sum) for value in args):
        raise recurrence(next(value for value in args if isinstance(value, Sum)))
    left, right = args if isinstance(args[0], Sum) else args[::-1]
    return join(run.lift, how, left, right)


def is_log(expression: Callable[[ast.expr, Any], Any], node: ast.expr, scope: Any) -> bool:
    """Whether a statement only prints or logs."""
    match node:
        case ast.Call(func=ast.Name(id=name)):
            return name == "print"
        case ast.Call(func=ast.Attribute(value=of, attr=name)):
            try:
                holder = getattr(expression(of, scope), "value", None)
            except Refused:
                return False
            path = f"{getattr(holder, '__name__', '')}.{name}"
            logs = ("logging.debug", "logging.info", "logging.warning", "tensorflow.print", "warnings.warn")
            return isinstance(holder, logging.Logger) or path in logs
    return False
