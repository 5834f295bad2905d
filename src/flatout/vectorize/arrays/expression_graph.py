"""The array program that a rewrite consists of: expressions as nodes, shared where they are equal.

A rewritten loss has no loops left, so it is a graph from the parameters to the returned value. Equal expressions are
one node: that removes repeated work, and what the result does not need is never printed. It is printed as Python
source: the body of a function in `keras.ops`.
"""

from __future__ import annotations

import ast
import collections
import keyword
import operator
import textwrap
from collections.abc import Container, Iterator
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

    @property
    def is_written(self) -> bool:
        """Whether it is written out in the function: no variable takes part."""
        return all(part.kind in ("const", "negative", "binary", "tuple", "list") for part in self.and_below())


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
# With brackets wherever they may be needed; those that are not go when the source is read and written again.
_TEMPLATES = {
    "name": "{0}", "const": "{0}", "raw": "({0})", "attribute": "{0}.{1}", "size": "{0}.shape[{1}]",
    "binary": "({1} {0} {2})", "negative": "(-{0})", "invert": "(not {0})", "ifexp": "({1} if {0} else {2})",
    "lambda": "(lambda {0}: {1})", "call": "{0}({1}{2})", "calling": "{0}({1}{2})", "method": "{0}.{1}({2}{3})",
    "tuple": "({0})", "list": "[{0}]",
}  # fmt: skip
_DEFAULT_NAMES = {
    "ops.equal": "same", "ops.not_equal": "differs", "ops.less": "below", "ops.greater_equal": "keep",
    "ops.logical_and": "keep", "ops.arange": "index", "ops.take": "entry", "ops.cast": "code", "ops.sum": "total",
    "ops.greater": "above", "ops.where": "chosen", "ops.convert_to_tensor": "table", "-": "difference", "*": "product",
}  # fmt: skip
# Python's functions of numbers, in `keras.ops`, with what the call has to say more.
_NUMBERS = {
    "float": ("ops.cast", "float32"), "int": ("ops.cast", "int32"), "max": ("ops.maximum",), "min": ("ops.minimum",),
    "abs": ("ops.abs",),
}  # fmt: skip
# Operators that need no brackets on their left where these stand there.
_CHAINS = ({"+", "-"}, {"*"})


class Printer:
    """Prints the part of a graph that a result needs as the body of a function, in which some names are `taken`.

    `is_unsized`: sizes may be known at run time alone, as TensorFlow's are where batches differ in length. Then they
    are asked for by `ops.shape`, and computed with by functions that take a tensor, too.
    """

    def __init__(self, graph: ExpressionGraph, taken: set[str], ops_name: str = "ops", is_unsized: bool = False):
        self._graph = graph
        self._taken = set(taken)
        self._ops = ops_name
        self._is_unsized = is_unsized
        self._given: dict[Node, str] = {}

    def body(self, result: Node) -> str:
        """Statements that end in `return result`."""
        if result.kind == "ifexp" and not self._is_asked(result.parts[0]):
            # A guard on the shape: what stands behind it must not be computed in its stead.
            condition, then, otherwise = result.parts
            known = dict(self._given)
            inside = self.body(then)
            self._given = known
            return f"if {self.text(condition)}:\n{textwrap.indent(inside, '    ')}\n{self.body(otherwise)}"
        lines = []
        order = list(result.and_below())
        uses = collections.Counter(part for node in order for part in node.inputs())
        for node in order:
            if node is not result and node not in self._given and self._deserves_a_name(node, uses[node]):
                text = self.text(node)
                name = self._fresh(self._graph.names.get(node) or _DEFAULT_NAMES.get(str(node.parts[0]), "part"))
                lines.append(f"{name} = {text}")
                self._given[node] = name
        return "\n".join([*lines, f"return {self.text(result)}"])

    def _deserves_a_name(self, node: Node, uses: int) -> bool:
        if node.kind == "attribute" and uses > 1:
            return any(part.kind in ("calling", "method") for part in node.and_below())
        if node.kind in ("name", "const", "size", "tuple", "list", "attribute", "lambda"):
            return False
        if node.kind == "negative" and node.parts[0].kind == "const":
            return False
        if node.kind == "binary" and not any(_is_tensor_like(part) for part in node.inputs()):
            return False
        return node in self._graph.names or uses > 1

    def _fresh(self, wish: str) -> str:
        name = fresh_name(wish if wish.isidentifier() and not keyword.iskeyword(wish) else "part", self._taken)
        self._taken.add(name)
        return name

    def text(self, node: Node) -> str:
        """An expression as source, with more brackets than it needs."""
        if node in self._given:
            return self._given[node]
        parts = node.parts
        asked = self._unsized(node) if self._is_unsized else None
        if asked is not None:
            return asked
        if node.kind == "index":
            return f"{self.text(parts[0])}[{', '.join(map(self._item, parts[1]))}]"
        if node.kind == "const" and parts[0].startswith("-"):
            return f"({parts[0]})"
        filled = [self._part(part) for part in parts]
        if node.kind == "call":
            filled[0] = self._function(parts[0])
        left = parts[1] if node.kind == "binary" else node
        if left.kind == "binary" and any({parts[0], left.parts[0]} <= chain for chain in _CHAINS):
            filled[1] = filled[1][1:-1] if filled[1].startswith("(") else filled[1]
        return _TEMPLATES[node.kind].format(*filled)

    def _part(self, part: Any) -> str:
        """What a template has in one place: an expression, several with commas behind them, or `name=value`."""
        if isinstance(part, Node):
            return self.text(part)
        if not isinstance(part, tuple):
            return str(part)
        return "".join(
            f"{one[0]}={self.text(one[1])}, " if isinstance(one, tuple) else f"{self.text(one)}, " for one in part
        )

    def _function(self, name: str) -> str:
        return f"{self._ops}{name[3:]}" if name.startswith("ops.") else name

    def _is_asked(self, node: Node) -> bool:
        """Whether a number is computed from sizes, and may be a tensor."""
        if not self._is_unsized:
            return False
        is_call = node.kind == "call" and node.parts[0] in _NUMBERS
        if is_call or node.kind in ("binary", "negative", "invert", "ifexp"):
            return any(self._is_asked(part) for part in node.inputs())
        return node.kind == "size"

    def _unsized(self, node: Node) -> str | None:
        """How a size, or what is computed from sizes, is written where they may be tensors; None: as always."""
        parts, ops = node.parts, self._ops
        if node.kind == "size":
            return f"{ops}.shape({self.text(parts[0])})[{parts[1]}]"
        if not any(self._is_asked(part) for part in node.inputs()):
            return None
        if node.kind == "binary" and parts[0] in FUNCTIONS and not _are_whole(node):
            return f"{ops}.{FUNCTIONS[parts[0]]}({self._part(parts[1:])})"
        if node.kind == "call" and parts[0] in _NUMBERS:
            function, *more = _NUMBERS[parts[0]]
            return f"{self._function(function)}({self._part(parts[1])}{', '.join(map(repr, more))})"
        if node.kind == "invert" and self._is_asked(parts[0]):
            return f"{ops}.logical_not({self.text(parts[0])})"
        if node.kind == "ifexp" and self._is_asked(parts[0]):
            condition, then, otherwise = map(self.text, parts)
            return f"{ops}.cond({condition}, lambda: {then}, lambda: {otherwise})"
        return None

    def _item(self, item: Any) -> str:
        """One item of an index: as such, an expression, or the bounds of a slice."""
        if isinstance(item, tuple):
            start, stop, step = ("" if part is None else self.text(part) for part in item)
            return f"{start}:{stop}:{step}" if step else f"{start}:{stop}"
        return self._part(item)


def fresh_name(wish: str, taken: Container[str]) -> str:
    """A name that is not taken."""
    name, number = wish, 2
    while name in taken:
        name, number = f"{wish}_{number}", number + 1
    return name


def _are_whole(node: Node) -> bool:
    """Whether an operation on sizes has a whole number as its result: Python's operators do for tensors as well."""
    if node.kind == "binary":
        return node.parts[0] != "/" and all(_are_whole(part) for part in node.inputs())
    return node.kind == "size" or (node.kind == "const" and node.parts[0].lstrip("-").isdigit())


def _is_tensor_like(node: Node) -> bool:
    if node.kind in ("const", "size"):
        return False
    if node.kind in ("binary", "negative"):
        return any(_is_tensor_like(part) for part in node.inputs())
    return True


def text_of(node: Node, ops_name: str = "ops") -> str:
    """An expression as source."""
    return ast.unparse(ast.parse(Printer(ExpressionGraph(), set(), ops_name).text(node), mode="eval"))
