"""The array program that a rewrite consists of: expressions as nodes, shared where they are equal, printed as source.

A rewritten loss has no loops left, so it is a graph from the parameters to the returned value. Equal expressions are
one node: that removes repeated work, and what the result does not need is never printed.
"""

from __future__ import annotations

import ast
import keyword
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, eq=False)
class Node:
    """An expression; `parts` depends on `kind`, see the functions of `Graph`."""

    kind: str
    parts: tuple[Any, ...]

    def inputs(self) -> Iterator[Node]:
        yield from _nodes_in(self.parts)


def _nodes_in(part: Any) -> Iterator[Node]:
    if isinstance(part, Node):
        yield part
    elif isinstance(part, tuple):
        for item in part:
            yield from _nodes_in(item)


class Graph:
    """Makes nodes; the same expression is the same node."""

    def __init__(self) -> None:
        self._known: dict[Any, Node] = {}
        # How often a reduction or product was asked for that was there already.
        self.repeats = 0
        # What the user called a value, for the printed source.
        self.names: dict[Node, str] = {}

    def make(self, kind: str, *parts: Any) -> Node:
        key = (kind, _key(parts))
        known = self._known.get(key)
        if known is None:
            known = self._known[key] = Node(kind, parts)
        elif kind == "call" and parts[0] in _COSTLY:
            self.repeats += 1
        return known

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


def _key(part: Any) -> Any:
    if isinstance(part, tuple):
        return tuple(_key(item) for item in part)
    return ("node", id(part)) if isinstance(part, Node) else part


_BINARY = {
    "+": ast.Add, "-": ast.Sub, "*": ast.Mult, "/": ast.Div, "//": ast.FloorDiv, "%": ast.Mod, "**": ast.Pow,
    "@": ast.MatMult, "&": ast.BitAnd, "|": ast.BitOr, "^": ast.BitXor,
}  # fmt: skip
_COMPARE = {"<": ast.Lt, "<=": ast.LtE, ">": ast.Gt, ">=": ast.GtE, "==": ast.Eq, "!=": ast.NotEq}


class Printer:
    """Prints the part of a graph that a result needs as the body of a function."""

    def __init__(self, graph: Graph, taken: set[str], ops_name: str = "ops"):
        self._graph = graph
        self._taken = set(taken)
        self._ops = ops_name
        self._given: dict[Node, str] = {}

    def body(self, result: Node) -> list[ast.stmt]:
        """Statements that end in `return result`."""
        if result.kind == "ifexp":
            # A guard on the shape: what stands behind it must not be computed in its stead.
            condition, then, otherwise = result.parts
            known = dict(self._given)
            inside = self.body(then)
            self._given = known
            first = ast.If(test=self._inline(condition), body=inside, orelse=[])
            return [first, *self.body(otherwise)]
        statements: list[ast.stmt] = []
        order, uses = _order(result)
        for node in order:
            if node is result or node in self._given or not self._deserves_a_name(node, uses[node]):
                continue
            value = self._inline(node)
            name = self._fresh(self._graph.names.get(node) or _DEFAULT_NAMES.get(str(node.parts[0]), "part"))
            statements.append(ast.Assign(targets=[ast.Name(name, ast.Store())], value=value))
            self._given[node] = name
        statements.append(ast.Return(value=self._inline(result)))
        return statements

    def _deserves_a_name(self, node: Node, uses: int) -> bool:
        if node.kind == "attribute" and uses > 1:
            return any(part.kind in ("calling", "method") for part in _order(node)[0])
        if node.kind in ("name", "const", "size", "tuple", "list", "attribute"):
            return False
        if node.kind == "binary" and not any(_is_tensor_like(part) for part in node.inputs()):
            return False
        return node in self._graph.names or uses > 1

    def _fresh(self, wish: str) -> str:
        wish = wish if wish.isidentifier() and not keyword.iskeyword(wish) else "part"
        name, number = wish, 2
        while name in self._taken:
            name, number = f"{wish}_{number}", number + 1
        self._taken.add(name)
        return name

    def _inline(self, node: Node) -> ast.expr:
        if node in self._given:
            return ast.Name(self._given[node], ast.Load())
        parts = node.parts
        match node.kind:
            case "name":
                return ast.Name(parts[0], ast.Load())
            case "const" | "raw":
                return ast.parse(parts[0], mode="eval").body
            case "attribute":
                return ast.Attribute(self._inline(parts[0]), parts[1], ast.Load())
            case "call":
                function = f"{self._ops}{parts[0][3:]}" if parts[0].startswith("ops.") else parts[0]
                return self._call(ast.parse(function, mode="eval").body, parts[1], parts[2])
            case "calling":
                return self._call(self._inline(parts[0]), parts[1], parts[2])
            case "method":
                method = ast.Attribute(self._inline(parts[0]), parts[1], ast.Load())
                return self._call(method, parts[2], parts[3])
            case "binary":
                left, right = self._inline(parts[1]), self._inline(parts[2])
                if parts[0] in _COMPARE:
                    return ast.Compare(left, [_COMPARE[parts[0]]()], [right])
                return ast.BinOp(left, _BINARY[parts[0]](), right)
            case "negative":
                return ast.UnaryOp(ast.USub(), self._inline(parts[0]))
            case "invert":
                return ast.UnaryOp(ast.Not(), self._inline(parts[0]))
            case "size":
                shape = ast.Attribute(self._inline(parts[0]), "shape", ast.Load())
                return ast.Subscript(shape, ast.Constant(parts[1]), ast.Load())
            case "index":
                items = [self._item(item) for item in parts[1]]
                at = items[0] if len(items) == 1 else ast.Tuple(items, ast.Load())
                return ast.Subscript(self._inline(parts[0]), at, ast.Load())
            case "tuple":
                return ast.Tuple([self._inline(item) for item in parts[0]], ast.Load())
            case "list":
                return ast.List([self._inline(item) for item in parts[0]], ast.Load())
            case "ifexp":
                return ast.IfExp(*(self._inline(part) for part in parts))
        raise AssertionError(f"no such node: {node.kind}")

    def _call(self, function: ast.expr, args: Any, kwargs: Any) -> ast.expr:
        keywords = [ast.keyword(name, self._inline(value)) for name, value in kwargs]
        return ast.Call(function, [self._inline(arg) for arg in args], keywords)

    def _item(self, item: Any) -> ast.expr:
        if item == ":":
            return ast.Slice()
        if item == "...":
            return ast.Constant(...)
        if item is None:
            return ast.Constant(None)
        if isinstance(item, Node):
            return self._inline(item)
        return ast.Slice(*(None if part is None else self._inline(part) for part in item))


_DEFAULT_NAMES = {
    "ops.equal": "same", "ops.not_equal": "differs", "ops.less": "below", "ops.greater_equal": "keep",
    "ops.logical_and": "keep", "ops.arange": "index", "ops.take": "entry", "ops.cast": "code", "ops.sum": "total",
    "ops.greater": "above", "ops.where": "chosen", "ops.convert_to_tensor": "table", "-": "difference", "*": "product",
}  # fmt: skip


def _is_tensor_like(node: Node) -> bool:
    if node.kind in ("const", "size"):
        return False
    if node.kind in ("binary", "negative"):
        return any(_is_tensor_like(part) for part in node.inputs())
    return True


def _order(result: Node) -> tuple[list[Node], dict[Node, int]]:
    """The nodes that a result needs, inputs first, and how often each is used."""
    order: list[Node] = []
    uses: dict[Node, int] = {result: 1}
    seen: set[Node] = set()

    def visit(node: Node) -> None:
        seen.add(node)
        for part in node.inputs():
            uses[part] = uses.get(part, 0) + 1
            if part not in seen:
                visit(part)
        order.append(node)

    visit(result)
    return order, uses
