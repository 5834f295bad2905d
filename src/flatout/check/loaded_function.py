"""What `flatout check` says of a function at hand: its rules, asked about one loss of a running program."""

from __future__ import annotations

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
        return _findings(function, backend) if library_of(function.__module__) is None else ()
    except Exception:
        # A report must not stop a training; the source may be gone, or no Python that the parser knows.
        return ()


def _findings(function: types.FunctionType, backend: Backend) -> tuple[Finding, ...]:
    from flatout.check.examining.examine import examine
    from flatout.check.examining.roots import roots_of
    from flatout.pysource.file_facts import facts_of
    from flatout.pysource.source_file import Project

    file, line = _source(function)
    project = Project()
    project.put(file)
    facts_of(file).compiled.setdefault(function.__name__, "loss")
    found: dict[tuple[str, str, int, int], Finding] = {}
    for root in roots_of(project, file, backend):
        first, last = root.function.node.lineno, root.function.node.end_lineno or 0
        is_it = root.function.file is file and first <= line <= last
        # The line of a decorated function is that of its first decorator.
        decorated = root.name.rpartition(".")[2] == function.__name__ and line <= first <= line + _most_decorators(
            function
        )
        if is_it or decorated:
            examine(project, root, found)
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
