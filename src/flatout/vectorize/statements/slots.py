"""Lists and arrays with a slot for every key, as they are made: `[0.0] * 4`, `[[] for _ in range(4)]`, `zeros(4)`."""

from __future__ import annotations

import ast
from dataclasses import dataclass

from .filling import assignment


@dataclass(frozen=True)
class Slots:
    """A list or array that starts with nothing in every slot.

    Attributes:
        name: The variable.
        made: The statement that makes it.
        count: How many slots, as source.
        default: `"number"` or `"list"`.
        stacked: How a list becomes what the variable is, as a format.
    """

    name: str
    made: ast.Assign
    count: str
    default: str
    stacked: str = "{}"


def slots_of(statement: ast.stmt) -> Slots | None:
    """The slots that a statement makes; None: it is another statement."""
    assigned = assignment(statement)
    if assigned is None:
        return None
    name, statement, value = assigned
    if isinstance(value, ast.List) and value.elts and {ast.unparse(one) for one in value.elts} <= {"0", "0.0"}:
        return Slots(name, statement, str(len(value.elts)), "number")
    if isinstance(value, ast.BinOp) and isinstance(value.op, ast.Mult):
        return _repeated(name, statement, value)
    if isinstance(value, ast.ListComp) and len(value.generators) == 1:
        return _comprehended(name, statement, value)
    if isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute) and value.func.attr == "zeros":
        return _zeros(name, statement, value)
    return None


def _repeated(name: str, made: ast.Assign, value: ast.BinOp) -> Slots | None:
    listed, count = (value.left, value.right) if isinstance(value.left, ast.List) else (value.right, value.left)
    # `[[]] * 4` is one list four times.
    if isinstance(listed, ast.List) and [ast.unparse(one) for one in listed.elts] in (["0"], ["0.0"]):
        return Slots(name, made, f"({ast.unparse(count)})", "number")
    return None


def _comprehended(name: str, made: ast.Assign, value: ast.ListComp) -> Slots | None:
    (loop,) = value.generators
    first = ast.unparse(value.elt)
    over = loop.iter
    if first not in ("0", "0.0", "[]") or loop.ifs or not isinstance(over, ast.Call):
        return None
    if ast.unparse(over.func) != "range" or len(over.args) != 1:
        return None
    return Slots(name, made, f"({ast.unparse(over.args[0])})", "list" if first == "[]" else "number")


def _zeros(name: str, made: ast.Assign, value: ast.Call) -> Slots | None:
    """Of the libraries whose arrays can be changed: `torch.zeros(3)`, `torch.zeros(3, 2)`, `np.zeros(3)`."""
    assert isinstance(value.func, ast.Attribute)
    library = ast.unparse(value.func.value)
    if library not in ("torch", "th", "np", "numpy") or not value.args:
        return None
    shape = value.args[0]
    if isinstance(shape, (ast.Tuple, ast.List)) and not shape.elts:
        return None
    count = shape.elts[0] if isinstance(shape, (ast.Tuple, ast.List)) else shape
    stacked = f"{library}.stack({{}})" if library in ("torch", "th") else f"{library}.array({{}})"
    return Slots(name, made, f"({ast.unparse(count)})", "number", stacked)
