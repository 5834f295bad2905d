"""What the functions of this folder ask of the interpreter that reads the loss, and how they are given their arguments.

Each declares what it takes, see the types of `lifted_values`.
"""

from __future__ import annotations

import ast
import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from flatout.vectorize.arrays.algebra import on_host
from flatout.vectorize.arrays.expression_graph import Node
from flatout.vectorize.arrays.lifted_values import (
    Host,
    Items,
    Known,
    Listing,
    Local,
    Refused,
    Tensor,
    WrongRank,
)
from flatout.vectorize.arrays.lifting import Lifting
from flatout.vectorize.arrays.shaping import tensor

# What a function gives for lifted arguments, given by place and by name.
Handler = Callable[["Reader", list[Any], dict[str, Any]], Any]


class Reader(Protocol):
    """The interpreter, as a function that it calls sees it."""

    lift: Lifting

    @property
    def handlers(self) -> Mapping[str, Handler]: ...
    def expression(self, node: ast.expr, scope: Any) -> Any: ...
    def reference(self, node: ast.expr, scope: Any) -> Any: ...
    def function(self, local: Local, args: list[Any], kwargs: dict[str, Any]) -> Any: ...
    def users_function(self, function: Any, args: list[Any], kwargs: dict[str, Any]) -> Any: ...
    def call(self, function: Any, args: list[Any], kwargs: dict[str, Any] | None = None) -> Any: ...
    def made_object(self, function: Known, path: str | None, args: list[Any], kwargs: dict[str, Any]) -> Any: ...
    def heap_method(self, of: Any, name: str, args: list[Any], kwargs: dict[str, Any]) -> Any: ...
    def truth(self, value: Any) -> Any: ...
    def compared(self, symbol: str, left: Any, right: Any) -> Any: ...
    def each_step(self, flow: Listing, body: Callable[[], Any]) -> Any: ...
    def made_once(self, wish: str, value: Any, node: Node) -> Known: ...


def bound(functions: Mapping[str, Callable[..., Any]]) -> dict[str, Handler]:
    """Handlers of functions that declare their own arguments, by the names of what they stand for."""
    return {path: _bound(path, function) for path, function in functions.items()}


def _bound(path: str, function: Callable[..., Any]) -> Handler:
    return lambda run, args, kwargs: called(run.lift, path, function, run, *args, **kwargs)


def called(lift: Lifting, path: str, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """What a function gives for lifted arguments, each as its annotation says; None is as good as not given."""
    signature = _signature(function)
    try:
        given = signature.bind(*args, **kwargs)
    except TypeError as error:
        raise Refused(f"{path}() with arguments that are not known here: {error}.", "FO205") from error
    for name, value in tuple(given.arguments.items()):
        parameter = signature.parameters[name]
        declared = _DECLARED.get(str(parameter.annotation).removesuffix(" | None"), lambda lift, path, value: value)
        if parameter.kind is parameter.VAR_POSITIONAL:
            given.arguments[name] = tuple(declared(lift, path, one) for one in value)
        elif parameter.kind is parameter.VAR_KEYWORD:
            given.arguments[name] = {word: declared(lift, path, one) for word, one in value.items()}
        elif parameter.default is not parameter.empty and isinstance(value, Known) and value.value is None:
            given.arguments[name] = parameter.default
        else:
            given.arguments[name] = declared(lift, path, value)
    return function(*given.args, **given.kwargs)


_signature = functools.cache(inspect.signature)


def _whole(lift: Lifting, path: str, value: Any) -> Tensor:
    made = tensor(lift, value)
    if made.valid is not None or made.is_loose:
        raise Refused(f"{path}() of a selection of elements has no masked form here.", "FO108")
    return made


def _vector(lift: Lifting, path: str, value: Any) -> Any:
    made = on_host(lift, tensor(lift, value))
    if made.rank != 1:
        raise WrongRank(f"{path}() of an array that is no vector.")
    return made


def _size(lift: Lifting, path: str, value: Any) -> Any:
    if not isinstance(value, (Known, Host)):
        raise Refused(f"{path}() with a size, or a bound, that depends on the data.", "FO108")
    return value


def _plain(lift: Lifting, path: str, value: Any) -> Any:
    if isinstance(value, Items):
        return tuple(_plain(lift, path, one) for one in value.values)
    if not isinstance(value, Known):
        raise Refused(f"{path}() with an argument that depends on the data.")
    if isinstance(value.value, (bool, int, float, str, list, tuple)):
        lift.stays(value.node, value.value)
    return value.value


_DECLARED: dict[str, Callable[[Lifting, str, Any], Any]] = {
    "Tensor": lambda lift, path, value: tensor(lift, value),
    "Read": lambda lift, path, value: on_host(lift, tensor(lift, value)),
    "Whole": _whole,
    "Vector": _vector,
    "Size": _size,
    "Plain": _plain,
}
