"""What `flatout check` says of a function at hand: its rules, asked about one loss of a running program."""

from __future__ import annotations

import contextlib
import inspect
import textwrap
import types
from pathlib import Path
from typing import Any

from flatout.check.examining.examine import examine
from flatout.check.examining.roots import roots_of
from flatout.check.rules.rule import Backend, Finding, by_place
from flatout.pysource.file_facts import facts_of
from flatout.pysource.library_functions import library_of
from flatout.pysource.source_file import Project, SourceFile
from flatout.pysource.trees import first_line


def findings_of(function: types.FunctionType, backend: Backend) -> tuple[Finding, ...]:
    """The findings in a function and in the functions that it calls, by line; none if its source is not to be had."""
    if library_of(function.__module__) is not None:
        return ()
    found: dict[tuple[str, str, int, int], Finding] = {}
    # A report must not stop a training; the source may be gone, or no Python that the parser knows.
    with contextlib.suppress(Exception):
        file, line = _source(function)
        project = Project()
        project.put(file)
        facts_of(file).compiled.setdefault(function.__name__, "loss")
        for root in roots_of(project, file):
            node = root.function.node
            if root.function.file is file and first_line(node) <= line <= (node.end_lineno or 0):
                examine(project, root, backend, found)
    return tuple(by_place(found.values()))


def _source(function: types.FunctionType) -> tuple[Any, int]:
    """The file of a function, and its line there; for a notebook's cell, the function alone with its imports."""
    path = Path(function.__code__.co_filename)
    if path.is_file():
        return SourceFile.read(path), function.__code__.co_firstlineno
    named = {name: function.__globals__.get(name) for name in function.__code__.co_names}
    lines = [f"import {one.__name__} as {name}" for name, one in named.items() if isinstance(one, types.ModuleType)]
    text = textwrap.dedent(inspect.getsource(function))
    return SourceFile(path, "\n".join([*lines, text])), len(lines) + 1
