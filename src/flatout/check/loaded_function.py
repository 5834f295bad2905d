"""What `flatout check` says of a function at hand: its rules, asked about one loss of a running program."""

from __future__ import annotations

import ast
import functools
import inspect
import textwrap
import types
from pathlib import Path
from typing import Any

from flatout.check.rules.rule import Backend, Finding
from flatout.pysource.library_functions import library_of


@functools.lru_cache(maxsize=256)
def findings_of(function: types.FunctionType, backend: Backend) -> tuple[Finding, ...]:
    """The findings in a function and in the functions that it calls, by line; none if its source is not to be had."""
    try:
        return _findings(function, backend) if _may_have_habits(function, set()) else ()
    except Exception:
        # A report must not stop a training; the source may be gone, or no Python that the parser knows.
        return ()


# What none of the rules about loops and compiling can do without; whoever has none of it need not wait for the checker.
_NEEDED = (ast.For, ast.While, ast.comprehension, ast.If, ast.IfExp, ast.Assert, ast.BoolOp, ast.Not, ast.With)
_READERS = frozenset(["numpy", "item", "tolist", "cpu", "convert_to_numpy", "py_function", "numpy_function"])
_CALLED = frozenset(["map", "map_fn", "reduce", "pure_callback", "boolean_mask", "nonzero", "unique", "Variable"])
_BUILT_IN = frozenset(["float", "int", "bool", "print", "filter", "open", "any", "all", "max", "min", "sorted", "sum"])
_HOST = ("numpy", "pandas", "scipy", "sklearn", "math", "random", "polars", "logging", "os", "time")


def _may_have_habits(function: Any, seen: set[Any]) -> bool:
    """Whether the syntax of a function, and of the user's functions that it calls, leaves anything to check."""
    if function in seen or not isinstance(function, types.FunctionType) or library_of(function.__module__) is not None:
        return False
    seen.add(function)
    for node in ast.walk(ast.parse(textwrap.dedent(inspect.getsource(function)))):
        name = node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""
        held = function.__globals__.get(name) if isinstance(node, ast.Name) else None
        if isinstance(node, _NEEDED) or (isinstance(node, ast.Subscript) and _may_select(node.slice)):
            return True
        if name in _READERS | _CALLED or (isinstance(node, ast.Name) and name in _BUILT_IN):
            return True
        if isinstance(held, types.ModuleType) and held.__name__.partition(".")[0] in _HOST:
            return True
        if name and held is not None and _may_have_habits(held, seen):
            return True
    # A method of its own object, or a closure: the checker finds out.
    return bool(function.__closure__) or "self" in function.__code__.co_varnames


def _may_select(node: ast.expr) -> bool:
    parts = node.elts if isinstance(node, ast.Tuple) else [node]
    return not all(isinstance(part, (ast.Constant, ast.Slice, ast.UnaryOp)) for part in parts)


def _findings(function: types.FunctionType, backend: Backend) -> tuple[Finding, ...]:
    from flatout.check.examining.examine import examine
    from flatout.check.examining.roots import roots_of
    from flatout.check.reading.walk import Walk
    from flatout.pysource.file_facts import facts_of
    from flatout.pysource.source_file import Project

    file, line = _source(function)
    project = Project()
    project.put(file)
    facts_of(file).compiled.setdefault(function.__name__, "loss")
    found: dict[tuple[str, str, int, int], Finding] = {}
    for root in roots_of(file, Walk(project, file, [], None, reporting=False), backend):
        first, last = root.function.node.lineno, root.function.node.end_lineno or 0
        is_it = root.function.file is file and first <= line <= last
        # The line of a decorated function is that of its first decorator.
        decorated = root.name.rpartition(".")[2] == function.__name__ and line <= first <= line + _most_decorators(
            function
        )
        if is_it or decorated:
            examine(project, root, backend, found)
    return tuple(sorted(found.values(), key=lambda one: (one.path, one.line, one.column, one.code)))


def _most_decorators(function: Any) -> int:
    return sum(text.lstrip().startswith("@") for text in inspect.getsource(function).splitlines())


def _source(function: types.FunctionType) -> tuple[Any, int]:
    """The file of a function, and its line there; for a notebook's cell, the function alone with its imports."""
    from flatout.pysource.source_file import SourceFile

    path = Path(function.__code__.co_filename)
    if path.is_file():
        return SourceFile.read(path), function.__code__.co_firstlineno
    named = {name: function.__globals__.get(name) for name in function.__code__.co_names}
    lines = [f"import {one.__name__} as {name}" for name, one in named.items() if isinstance(one, types.ModuleType)]
    text = textwrap.dedent(inspect.getsource(function))
    return SourceFile(path, "\n".join([*lines, text])), len(lines) + 1
