"""`flatout check`: the rules over files and folders without running them, and over a function at hand."""

from __future__ import annotations

import ast
import contextlib
import inspect
import sys
import textwrap
import types
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from flatout.base.errors import InvalidOption
from flatout.check.reading.events import Entered, WalkedLoop
from flatout.check.reading.walk import Walk
from flatout.check.rules.catalogue import RULES, handlers_for
from flatout.check.rules.rule import Backend, Finding, Severity, by_place
from flatout.pysource.file_facts import facts_of
from flatout.pysource.library_functions import library_of
from flatout.pysource.source_file import Project, SourceFile
from flatout.pysource.trees import first_line

from .root import Root
from .roots import roots_of

Findings = dict[tuple[str, str, int, int], Finding]
_SKIPPED = frozenset({
    "__pycache__", ".git", ".venv", "venv", "env", "node_modules", "build", "dist", ".tox", ".mypy_cache",
    "site-packages",
})  # fmt: skip


@dataclass(eq=False)
class Examination(Walk):
    """A walk that the rules listen to, and where they report."""

    backend: Backend = "jax"
    findings: Findings = field(default_factory=dict)

    def report(
        self,
        code: str,
        node: ast.AST,
        message: str,
        advice: str = "",
        severity: Severity | dict[str, Severity] | None = None,
        about: WalkedLoop | None = None,
    ) -> None:
        """Add a finding, unless a comment on its line excuses it; `{}` is the node, or the function that it calls."""
        rule = RULES[code]
        file = about.file if about is not None else self.file
        place = file.place(node)
        # The comment may stand at the end of a call that spans lines, but not somewhere in the body of a loop.
        is_block = isinstance(node, (ast.For, ast.While, ast.If))
        if file.is_excused(code, place.line, place.line if is_block else getattr(node, "end_lineno", place.line)):
            return
        if "`{}`" in message:
            message = message.replace("{}", self.excerpt(node.func if isinstance(node, ast.Call) else node), 1)
        here = (severity.get(self.backend) if isinstance(severity, dict) else severity) or rule.severity(self.backend)
        path, fix = str(file.path), advice or rule.rewrite
        found = Finding(code, path, place.line, place.column, message, here, rule.why, fix, self.root.name)
        self.findings.setdefault((code, path, *place), found)


def check_paths(
    paths: Iterable[Path | str], backend: Backend = "jax", exclude: Iterable[str] = (), project: Project | None = None
) -> list[Finding]:
    """The findings in files and folders by file and line, with severities for a backend of Keras.

    `exclude` has patterns as of `Path.match`; `project` may hold files that are not, or otherwise, on disk.
    """
    project = project or Project()
    findings: Findings = {}
    for path in python_files(paths, exclude):
        check_file(project, path, backend, findings)
    return by_place(findings.values())


def python_files(paths: Iterable[Path | str], exclude: Iterable[str] = ()) -> list[Path]:
    """The files that are meant: those named, and all `.py` files of folders."""
    patterns = tuple(exclude)
    found: list[Path] = []
    for path in map(Path, paths):
        if path.is_dir():
            inside = sorted(path.rglob("*.py"))
            found += [one for one in inside if not _SKIPPED & set(one.relative_to(path).parts)]
        elif path.exists():
            found.append(path)
        else:
            raise InvalidOption(f"No such file or folder: {path}. Expected Python files, or folders with some.")
    return [path for path in dict.fromkeys(found) if not any(path.match(pattern) for pattern in patterns)]


def check_file(project: Project, path: Path, backend: Backend, findings: Findings) -> list[Root]:
    """Examine one file; findings in files that it imports from are added too."""
    file = project.file(path)
    file.path = path
    roots = roots_of(project, file)
    for root in roots:
        try:
            examine(project, root, backend, findings)
        except Exception as error:
            # A fault of ours in one function must not hide what is wrong with the others.
            place = f"{path}:{root.function.file.place(root.function.node).line}"
            print(
                f"flatout check: {place}: {root.name} was not examined: {error!r}. Please report it.", file=sys.stderr
            )
    return roots


def examine(project: Project, root: Root, backend: Backend, findings: Findings) -> None:
    """Walk through one loss, metric, step or callback."""
    listening = handlers_for(root.kind)
    walker = Examination(project, root.function.file, listening, root, backend=backend, findings=findings)
    walker.tell(Entered(root.function.node))
    walker.run(root.function, list(root.arguments), {})


def findings_of(function: types.FunctionType, backend: Backend) -> tuple[Finding, ...]:
    """The findings in a function and in the functions that it calls, by line; none if its source is not to be had."""
    if library_of(function.__module__) is not None:
        return ()
    found: Findings = {}
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


def _source(function: types.FunctionType) -> tuple[SourceFile, int]:
    """The file of a function, and its line there; for a notebook's cell, the function alone with its imports."""
    path = Path(function.__code__.co_filename)
    if path.is_file():
        return SourceFile.read(path), function.__code__.co_firstlineno
    named = {name: function.__globals__.get(name) for name in function.__code__.co_names}
    lines = [f"import {one.__name__} as {name}" for name, one in named.items() if isinstance(one, types.ModuleType)]
    text = textwrap.dedent(inspect.getsource(function))
    return SourceFile(path, "\n".join([*lines, text])), len(lines) + 1
