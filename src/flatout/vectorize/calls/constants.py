"""Calls whose arguments are all constants: made now; the rewritten source makes them again."""

from __future__ import annotations

from typing import Any

from flatout.vectorize.arrays.expression_graph import ExpressionGraph, Node
from flatout.vectorize.arrays.lifted_values import Items, Known, Refused

from .reader import Reader

# A file is read once, when the rewrite is made, and not at every call.
_FILE_READERS = ("read_csv", "read_parquet", "read_json", "read_excel", "load", "loadtxt", "genfromtxt", "read_feather")
_PURE = ("numpy", "pandas", "math", "keras", "tensorflow", "torch", "jax", "itertools", "pathlib", "builtins")
_OF_PATHS = ("posixpath", "ntpath", "genericpath")
_EFFECTS = ("open", "print", "input", "exec", "eval", "next", "setattr", "delattr", "Variable")


def constant(run: Reader, function: Known, path: str | None, args: list[Any], kwargs: dict[str, Any]) -> Known:
    """A call whose arguments are all constants, made now; the rewritten source makes it again."""
    name = (path or "").rpartition(".")[2]
    root = (path or "").partition(".")[0]
    if root == "collections":
        raise Refused(f"A {name} is filled or read in a way that has no array form.", "FO106")
    if root not in (*_PURE, *_OF_PATHS) or name in _EFFECTS:
        raise Refused(f"A call to {path or 'an unknown function'}, which may do more than compute.", "FO206")
    try:
        value = function.value(*map(_plain, args), **{key: _plain(item) for key, item in kwargs.items()})
    except Exception as error:
        raise Refused(f"{path} fails: {error}") from error
    if value is None:  # Such as torch.manual_seed().
        raise Refused(f"A call is made for its effect: {path}().", "FO303")
    graph = run.lift.graph
    node = graph.make(
        "calling", function.node, tuple(_node(graph, item) for item in args),
        tuple((key, _node(graph, item)) for key, item in kwargs.items()),
    )  # fmt: skip
    if name in _FILE_READERS:
        run.lift.changes.add("FO301")
        run.lift.note(f"{name}() is called once, when the rewrite is made, and not at every call.")
        return run.made_once(name, value, node)
    return Known(value, node)


def _plain(value: Any) -> Any:
    if isinstance(value, Items):
        made = [_plain(item) for item in value.values]
        return made if value.is_list else tuple(made)
    return value.value


def _node(graph: ExpressionGraph, value: Any) -> Node:
    if isinstance(value, Items):
        return graph.sequence(tuple(_node(graph, item) for item in value.values), value.is_list)  # type: ignore[no-any-return]
    return value.node  # type: ignore[no-any-return]
