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
from flatout.vectorize.arrays.lifted_values import Host, Items, Known, Local, Method, Refused, Stream, Tensor
from flatout.vectorize.arrays.lifting import Lifting
from flatout.vectorize.arrays.shaping import tensor

# What a function gives for lifted arguments, given by place and by name.
Handler = Callable[["Reader", list[Any], dict[str, Any]], Any]


class Reader(Protocol):
    """The interpreter, as a function that it calls sees it."""

    lift: Lifting

    @property
    def handlers(self) -> Mapping[str, Handler]:
        """Functions that are no plain function of arrays, by their dotted names."""

    def expression(self, node: ast.expr, scope: Any) -> Any:
        """The lifted value of an expression, for code that only looks at it."""

    def reference(self, node: ast.expr, scope: Any) -> Any:
        """The lifted value of an expression, with the identity of what may be changed."""

    def function(self, local: Local, args: list[Any], kwargs: dict[str, Any]) -> Any:
        """What a function gives that is defined in the loss."""

    def users_function(self, function: Any, args: list[Any], kwargs: dict[str, Any]) -> Any:
        """What a function of the user's gives, which is read in place of being called."""

    def call(self, function: Any, args: list[Any], kwargs: dict[str, Any] | None = None) -> Any:
        """What any lifted value gives that can be called."""

    def made_object(self, function: Known, path: str | None, args: list[Any], kwargs: dict[str, Any]) -> Any:
        """The list, dict or object that a call makes; None: it makes none that may be changed."""

    def heap_method(self, function: Method, args: list[Any], kwargs: dict[str, Any]) -> Any:
        """What a method gives of a list, dict or object that the user's code made."""

    def truth(self, value: Any) -> Any:
        """A condition: True or False if known now, else a `Host` or a tensor of booleans."""

    def compared(self, symbol: str, left: Any, right: Any) -> Any:
        """`left symbol right`, perhaps of what a loop carries."""

    def each_step(self, flow: Stream, body: Callable[[], Any]) -> Any:
        """What `body` gives for all steps of a loop at once."""

    def made_once(self, wish: str, value: Any, node: Node) -> Known:
        """A value that the rewrite makes once, and not at every call."""


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
    "Size": _size,
    "Plain": _plain,
}
