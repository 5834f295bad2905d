"""Tables of numbers that a loop counts in: `table[a, b] += 1` and `table[a][b] += 1` as terms with two keys.

Behind the loop the cell of `a` and `b` is the sum of the terms with these keys; see `grouping` for tables of one key.
"""

from __future__ import annotations

import ast
from collections.abc import Callable
from dataclasses import dataclass

from .filling import NotOfThisKind, assignment, is_name


@dataclass(frozen=True)
class Cells:
    """A table that starts with zeros: its variable, its sizes as source, and how a list of lists becomes what it is."""

    name: str
    rows: str
    columns: str
    stacked: str = "{}"


def cells_of(statement: ast.stmt) -> Cells | None:
    """The table that a statement makes; None: it is another statement."""
    assigned = assignment(statement)
    if assigned is None:
        return None
    name, _, value = assigned
    if isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute) and value.func.attr == "zeros":
        library = ast.unparse(value.func.value)
        shape = value.args[0].elts if value.args and isinstance(value.args[0], (ast.Tuple, ast.List)) else value.args
        if library not in ("torch", "th", "np", "numpy") or len(shape) != 2:
            return None
        made = f"{library}.stack({{}})" if library in ("torch", "th") else f"{library}.array({{}})"
        return Cells(name, f"({ast.unparse(shape[0])})", f"({ast.unparse(shape[1])})", made)
    return _listed(name, value)


def _listed(name: str, value: ast.expr) -> Cells | None:
    """`[[0] * m for _ in range(n)]`."""
    if not isinstance(value, ast.ListComp) or len(value.generators) != 1 or not isinstance(value.elt, ast.BinOp):
        return None
    loop, row = value.generators[0], value.elt
    is_range = isinstance(loop.iter, ast.Call) and ast.unparse(loop.iter.func) == "range" and len(loop.iter.args) == 1
    if not is_range or loop.ifs or not isinstance(row.op, ast.Mult) or ast.unparse(row.left) not in ("[0]", "[0.0]"):
        return None
    return Cells(name, f"({ast.unparse(loop.iter.args[0])})", f"({ast.unparse(row.right)})")  # type: ignore[attr-defined]


class Counting(ast.NodeTransformer):
    """Statements that add to a cell, as terms that are appended."""

    def __init__(self, cells: Cells, is_counter: Callable[[ast.expr], bool]):
        self._cells = cells
        self._is_counter = is_counter
        self.found = 0

    def visit_AugAssign(self, node: ast.AugAssign) -> ast.stmt:
        keys = self._keys(node.target)
        if keys is None:
            return node
        # Where both are variables of ranges, cells are set in the order of the loops, which has a form of its own.
        if not isinstance(node.op, ast.Add) or all(self._is_counter(key) for key in keys):
            raise NotOfThisKind
        if any(isinstance(key, (ast.Slice, ast.Starred)) for key in keys):
            raise NotOfThisKind
        self.found += 1
        append = ast.Attribute(ast.Name(f"{self._cells.name}_terms", ast.Load()), "append", ast.Load())
        term = ast.Tuple([*keys, node.value], ast.Load())
        return ast.copy_location(ast.Expr(ast.Call(append, [term], [])), node)

    def _keys(self, node: ast.expr) -> tuple[ast.expr, ast.expr] | None:
        name = self._cells.name
        if not isinstance(node, ast.Subscript):
            return None
        if is_name(node.value, name) and isinstance(node.slice, ast.Tuple) and len(node.slice.elts) == 2:
            return node.slice.elts[0], node.slice.elts[1]
        inside = node.value
        if (
            isinstance(inside, ast.Subscript)
            and is_name(inside.value, name)
            and not isinstance(inside.slice, ast.Tuple)
        ):
            return inside.slice, node.slice
        return None


def table_behind(cells: Cells) -> str:
    """The statement that makes the table of its terms."""
    name = cells.name
    # Python counts negative places from the end.
    mine = f"{name}_key % {cells.rows} == {name}_slot and {name}_wanted % {cells.columns} == {name}_cell"
    terms = f"[{name}_term for {name}_key, {name}_wanted, {name}_term in {name}_terms if {mine}]"
    row = f"[sum({terms}) for {name}_cell in range({cells.columns})]"
    return f"{name} = " + cells.stacked.format(f"[{row} for {name}_slot in range({cells.rows})]")
