"""What the functions of this folder ask of the interpreter that reads the loss: the one way up from here."""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from flatout.vectorize.arrays.expression_graph import Node
from flatout.vectorize.arrays.lifted_values import Known, Local, Method, Stream
from flatout.vectorize.arrays.lifting import Lifting

from .signatures import called

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
