"""The array program that a rewrite consists of: expressions as nodes, shared where they are equal.

A rewritten loss has no loops left, so it is a graph from the parameters to the returned value. Equal expressions are
one node: that removes repeated work, and what the result does not need is never printed.
"""

from __future__ import annotations

import operator
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

# What each operator is called in `keras.ops`.
FUNCTIONS = {
    "+": "add", "-": "subtract", "*": "multiply", "/": "divide", "//": "floor_divide", "%": "mod", "**": "power",
    "<": "less", "<=": "less_equal", ">": "greater", ">=": "greater_equal", "==": "equal", "!=": "not_equal",
    "&": "logical_and", "|": "logical_or", "^": "logical_xor", "@": "matmul",
}  # fmt: skip
# What each does in Python.
PYTHON: dict[str, Any] = {
    "+": operator.add, "-": operator.sub, "*": operator.mul, "/": operator.truediv, "//": operator.floordiv,
    "%": operator.mod, "**": operator.pow, "@": operator.matmul, "&": operator.and_, "|": operator.or_,
    "^": operator.xor, "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge, "==": operator.eq,
    "!=": operator.ne,
}  # fmt: skip


@dataclass(frozen=True, eq=False)
class Node:
    """An expression; `parts` depends on `kind`, see the functions of `ExpressionGraph`."""

    kind: str
    parts: tuple[Any, ...]

    def inputs(self) -> Iterator[Node]:
        yield from _nodes_in(self.parts)

    def and_below(self) -> Iterator[Node]:
        """Every expression that this one is made of, once, inputs first, and itself."""
        seen, open_ = {self}, [(self, self.inputs())]
        while open_:
            part = next((one for one in open_[-1][1] if one not in seen), None)
            if part is None:
                yield open_.pop()[0]
            else:
                seen.add(part)
                open_.append((part, part.inputs()))


def _nodes_in(part: Any) -> Iterator[Node]:
    if isinstance(part, Node):
        yield part
    elif isinstance(part, tuple):
        for item in part:
            yield from _nodes_in(item)


class ExpressionGraph:
    """Makes nodes; the same expression is the same node."""

    def __init__(self) -> None:
        self._known: dict[Any, Node] = {}
        # How often a reduction or product was asked for that was there already.
        self.repeats = 0
        # What names outside the loss meant that the program holds as it was: functions, constants of other modules.
        self.pins: list[tuple[Any, str, Any]] = []
        # What the user called a value, for the printed source.
        self.names: dict[Node, str] = {}

    def make(self, kind: str, *parts: Any) -> Node:
        if (kind, parts) not in self._known:
            self._known[kind, parts] = Node(kind, parts)
        elif kind == "call" and parts[0] in _COSTLY:
            self.repeats += 1
        return self._known[kind, parts]

    def name(self, identifier: str) -> Node:
        return self.make("name", identifier)

    def const(self, value: Any) -> Node:
        return self.make("const", repr(value))

    def call(self, function: str, *args: Node, **kwargs: Node) -> Node:
        return self.make("call", function, args, tuple(kwargs.items()))

    def method(self, of: Node, name: str, *args: Node, **kwargs: Node) -> Node:
        return self.make("method", of, name, args, tuple(kwargs.items()))

    def binary(self, symbol: str, left: Node, right: Node) -> Node:
        return self.make("binary", symbol, left, right)

    def index(self, of: Node, items: tuple[Any, ...]) -> Node:
        """`of[items]`: each item `:` or `...` or None as such, a Node, or `(start, stop, step)` for a slice."""
        return self.make("index", of, items)

    def size(self, of: Node, position: int) -> Node:
        return self.make("size", of, position)

    def sequence(self, items: tuple[Node, ...], is_list: bool = False) -> Node:
        return self.make("list" if is_list else "tuple", items)


_COSTLY = ("ops.sum", "ops.mean", "ops.max", "ops.min", "ops.matmul", "ops.logsumexp", "ops.softmax", "ops.prod")
