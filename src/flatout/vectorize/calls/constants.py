"""Calls whose arguments are all constants: made now; the rewritten source makes them again."""

from __future__ import annotations

from typing import Any

from flatout.vectorize.arrays.algebra import as_constant
from flatout.vectorize.arrays.lifted_values import Known, Refused

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
    graph = run.lift.graph
    given = [as_constant(run.lift, item) for item in args]
    words = {key: as_constant(run.lift, item) for key, item in kwargs.items()}
    try:
        value = function.value(*(item.value for item in given), **{key: item.value for key, item in words.items()})
    except Exception as error:
        raise Refused(f"{path} fails: {error}") from error
    if value is None:  # Such as torch.manual_seed().
        raise Refused(f"A call is made for its effect: {path}().", "FO303")
    nodes = tuple(item.node for item in given)
    node = graph.make("calling", function.node, nodes, tuple((key, item.node) for key, item in words.items()))
    if name in _FILE_READERS:
        run.lift.changes.add("FO301")
        run.lift.note(f"{name}() is called once, when the rewrite is made, and not at every call.")
        return run.made_once(name, value, node)
    return Known(value, node)
