"""Prints an array program as Python source: the body of a function in `keras.ops`."""

from __future__ import annotations

import ast
import collections
import keyword
from typing import Any

from .expression_graph import FUNCTIONS, ExpressionGraph, Node

_BINARY = {
    "+": ast.Add, "-": ast.Sub, "*": ast.Mult, "/": ast.Div, "//": ast.FloorDiv, "%": ast.Mod, "**": ast.Pow,
    "@": ast.MatMult, "&": ast.BitAnd, "|": ast.BitOr, "^": ast.BitXor,
}  # fmt: skip
_COMPARE = {"<": ast.Lt, "<=": ast.LtE, ">": ast.Gt, ">=": ast.GtE, "==": ast.Eq, "!=": ast.NotEq}


class Printer:
    """Prints the part of a graph that a result needs as the body of a function.

    Args:
        graph: The program.
        taken: Names that are not free.
        ops_name: How the source says `keras.ops`.
        is_unsized: Whether sizes may be known at run time alone, as TensorFlow's are where batches differ in length:
            then they are asked for by `ops.shape`, and computed with by functions that take a tensor, too.
    """

    def __init__(self, graph: ExpressionGraph, taken: set[str], ops_name: str = "ops", is_unsized: bool = False):
        self._graph = graph
        self._taken = set(taken)
        self._ops = ops_name
        self._is_unsized = is_unsized
        self._given: dict[Node, str] = {}

    def body(self, result: Node) -> list[ast.stmt]:
        """Statements that end in `return result`."""
        if result.kind == "ifexp" and not self._is_asked(result.parts[0]):
            # A guard on the shape: what stands behind it must not be computed in its stead.
            condition, then, otherwise = result.parts
            known = dict(self._given)
            inside = self.body(then)
            self._given = known
            first = ast.If(test=self._inline(condition), body=inside, orelse=[])
            return [first, *self.body(otherwise)]
        statements: list[ast.stmt] = []
        order = list(result.and_below())
        uses = collections.Counter(part for node in order for part in node.inputs())
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
            return any(part.kind in ("calling", "method") for part in node.and_below())
        if node.kind in ("name", "const", "size", "tuple", "list", "attribute", "lambda"):
            return False
        if node.kind == "negative" and node.parts[0].kind == "const":
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
        if self._is_unsized:
            asked = self._unsized(node)
            if asked is not None:
                return asked
        parts = node.parts
        match node.kind:
            case "name":
                return ast.Name(parts[0], ast.Load())
            case "const" | "raw":
                return ast.parse(parts[0], mode="eval").body
            case "attribute":
                return ast.Attribute(self._inline(parts[0]), parts[1], ast.Load())
            case "call":
                return self._call(self._function(parts[0]), parts[1], parts[2])
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
            case "lambda":
                argument = ast.arguments([], [ast.arg(parts[0].parts[0])], None, [], [], None, [])
                return ast.Lambda(argument, self._inline(parts[1]))
            case "ifexp":
                return ast.IfExp(*(self._inline(part) for part in parts))
        raise AssertionError(f"no such node: {node.kind}")

    def _function(self, name: str) -> ast.expr:
        return ast.parse(f"{self._ops}{name[3:]}" if name.startswith("ops.") else name, mode="eval").body

    def _is_asked(self, node: Node) -> bool:
        """Whether a number is computed from sizes, and may be a tensor."""
        if not self._is_unsized:
            return False
        if node.kind in ("binary", "negative", "invert", "ifexp") or (
            node.kind == "call" and node.parts[0] in _NUMBERS
        ):
            return any(self._is_asked(part) for part in node.inputs())
        return node.kind == "size"

    def _unsized(self, node: Node) -> ast.expr | None:
        """How a size, or what is computed from sizes, is written where they may be tensors; None: as always."""
        parts = node.parts
        if node.kind == "size":
            shape = ast.Call(self._function("ops.shape"), [self._inline(parts[0])], [])
            return ast.Subscript(shape, ast.Constant(parts[1]), ast.Load())
        if not any(self._is_asked(part) for part in node.inputs()):
            return None
        if node.kind == "binary" and parts[0] in FUNCTIONS and not _are_whole(node):
            sides = [self._inline(part) for part in parts[1:]]
            return ast.Call(self._function(f"ops.{FUNCTIONS[parts[0]]}"), sides, [])
        if node.kind == "call" and parts[0] in _NUMBERS:
            function, *more = _NUMBERS[parts[0]]
            given = [*(self._inline(part) for part in parts[1]), *(ast.Constant(text) for text in more)]
            return ast.Call(self._function(function), given, [])
        if node.kind == "invert" and self._is_asked(parts[0]):
            return ast.Call(self._function("ops.logical_not"), [self._inline(parts[0])], [])
        if node.kind == "ifexp" and self._is_asked(parts[0]):
            none = ast.arguments([], [], None, [], [], None, [])
            sides = [ast.Lambda(none, self._inline(part)) for part in parts[1:]]
            return ast.Call(self._function("ops.cond"), [self._inline(parts[0]), *sides], [])
        return None

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


# Python's functions of numbers, in `keras.ops`, with what the call has to say more.
_NUMBERS = {
    "float": ("ops.cast", "float32"), "int": ("ops.cast", "int32"), "max": ("ops.maximum",), "min": ("ops.minimum",),
    "abs": ("ops.abs",),
}  # fmt: skip


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
    return ast.unparse(ast.fix_missing_locations(Printer(ExpressionGraph(), set(), ops_name)._inline(node)))
