"""Loops as array code, written into the file: what `flatout.vectorize` proved, in the place of the function."""

from __future__ import annotations

import ast
import builtins
import contextlib
import importlib
import inspect
import sys
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import libcst as cst
import numpy as np

from flatout.check.probing.live_functions import imported
from flatout.check.probing.probe_inputs import Inputs, described, usual
from flatout.check.rules.rule import Finding
from flatout.pysource.source_file import SourceFile, walk
from flatout.vectorize.decorator import vectorize

# What a rewrite answers; the rest has fixes of its own, or none.
_ANSWERED = ("FO10", "FO201", "FO202", "FO203", "FO205", "FO301", "FO306", "FO401")


_HINT = " Say what occurs: --inputs, or a comment `# inputs: y_true=float32[8,3] y_pred=float32[8,3]`."


@dataclass(frozen=True)
class Rewritten:
    """What became of a function: its new source, or why it has none."""

    name: str
    source: str | None
    reason: str


def rewritten_functions(
    file: SourceFile, findings: list[Finding], unsafe: bool, given: Inputs | None = None
) -> list[Rewritten]:
    """The proven rewrites of a file's functions that have findings; the file is imported to prove them.

    Args:
        file: With the functions.
        findings: Of the file.
        unsafe: Also what was not proven.
        given: What the arrays look like, if the user says so; else a comment of the file may.
    """
    wanted = {one.function for one in findings if one.code.startswith(_ANSWERED) and "." not in one.function}
    loops = {one.function for one in findings if one.code.startswith(("FO10", "FO401", "FO201", "FO205"))}
    names = [name for name in _top_level(file.tree) if name in wanted & loops]
    if not names:
        return []
    if trains_at_import(file.tree):
        return [Rewritten(name, None, "the file trains when it is imported; guard that by __name__") for name in names]
    with contextlib.redirect_stdout(sys.stderr), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        module = imported(Path(file.path))
        inputs = given or described(file.text)
        return [_rewritten(getattr(module, name, None), name, unsafe, inputs) for name in names]


def _rewritten(function: Any, name: str, unsafe: bool, inputs: Inputs | None) -> Rewritten:
    """The rewrite for the ranks that the code suggests, else for those of the inputs."""
    found = _attempt(function, name, unsafe, inputs, {})
    if found.source is None and inputs is not None:
        again = _attempt(function, name, unsafe, inputs, {"example": inputs.draw(8)})
        return again if again.source is not None else found
    return found


def _attempt(function: Any, name: str, unsafe: bool, inputs: Inputs | None, more: dict[str, Any]) -> Rewritten:
    try:
        made = vectorize(function, **more)
        applied, source, reason = made.applied, made.source, made.reason
    except Exception as error:
        return Rewritten(name, None, f"{type(error).__name__}: {error}")
    if source is None or not (applied or unsafe):
        return Rewritten(name, None, str(reason))
    missing = _missing_names(source, getattr(function, "__globals__", {}))
    if missing:
        return Rewritten(name, None, f"the rewrite needs objects that the file does not name: {', '.join(missing)}")
    if applied and not unsafe:
        # With an example, the ranks were those of the inputs, and there is nothing else to compare.
        problem = _problem(function, source, name, inputs, has_example=bool(more))
        if problem:
            return Rewritten(name, None, problem + ("" if inputs else _HINT))
    return Rewritten(name, source, "proven equal in value and gradient" if applied else f"not proven: {reason}")


def _problem(function: Any, source: str, name: str, inputs: Inputs | None, has_example: bool) -> str:
    """Why a proven rewrite must not be written: shapes that the original takes and for which it gives something else.

    `flatout.vectorize` looks at the ranks at every call; source in a file cannot.
    """
    from keras import config

    tools = importlib.import_module(f"flatout.check.probing.{config.backend()}_probe")
    namespace = {"ops": importlib.import_module("keras.ops"), **function.__globals__}
    exec(compile(source, f"<rewrite of {name}>", "exec"), namespace)
    parameters = list(inspect.signature(function).parameters)
    compared = has_example
    for one in [inputs] if inputs is not None else usual(function, *parameters[:2]):
        for batch in (1, 7):
            values = one.draw(batch, seed=batch)
            try:
                wanted = tools.eager(function, values)
            except Exception:
                continue
            # An empty slice, or 0 / 0: what the rewrite gives there is its note's matter.
            if np.isnan(wanted).any():
                continue
            compared = True
            if not _is_equal(tools, namespace[name], values, wanted):
                shapes = " ".join(f"{key}={value.dtype}{list(value.shape)}" for key, value in values.items())
                return f"the rewrite is not equal for {shapes}."
    return "" if compared else "the original ran with none of the shapes, so its rewrite could not be compared."


def _is_equal(tools: Any, function: Any, values: dict[str, np.ndarray], wanted: np.ndarray) -> bool:
    try:
        found = tools.eager(function, values)
    except Exception:
        return False
    return found.shape == wanted.shape and np.allclose(found, wanted, rtol=1e-4, atol=1e-6)


def _missing_names(source: str, namespace: dict[str, Any]) -> list[str]:
    """The names that a rewrite uses and that neither it nor the module defines."""
    tree = ast.parse(source)
    named = [node for node in ast.walk(tree) if isinstance(node, ast.Name)]
    own = {node.id for node in named if isinstance(node.ctx, ast.Store)} | {"ops"}
    own |= {node.arg for node in ast.walk(tree) if isinstance(node, ast.arg)}
    own |= {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
    own |= {
        alias.asname or alias.name
        for node in ast.walk(tree)
        if isinstance(node, (ast.Import, ast.ImportFrom))
        for alias in node.names
    }
    used = {node.id for node in named if isinstance(node.ctx, ast.Load)}
    return sorted(used - own - set(namespace) - set(dir(builtins)))


def _top_level(tree: cst.Module) -> Iterator[str]:
    for statement in tree.body:
        if isinstance(statement, cst.FunctionDef) and not statement.decorators:
            yield statement.name.value


def trains_at_import(tree: cst.Module) -> bool:
    """Whether `.fit(` is called outside functions and outside `if __name__ == "__main__"`."""
    for statement in tree.body:
        if isinstance(statement, (cst.FunctionDef, cst.ClassDef)):
            continue
        if isinstance(statement, cst.If) and any(
            isinstance(one, cst.Name) and one.value == "__name__" for one in walk(statement.test)
        ):
            continue
        for node in walk(statement):
            if (
                isinstance(node, cst.Call)
                and isinstance(node.func, cst.Attribute)
                and node.func.attr.value in ("fit", "train")
            ):
                return True
    return False


def with_rewrites(tree: cst.Module, rewrites: list[Rewritten]) -> cst.Module:
    """The module with functions replaced by their rewrites, and `ops` imported."""
    sources = {one.name: one.source for one in rewrites if one.source is not None}
    if not sources:
        return tree
    body: list[Any] = []
    for statement in tree.body:
        source = sources.get(statement.name.value) if isinstance(statement, cst.FunctionDef) else None
        if source is None:
            body.append(statement)
            continue
        new = list(cst.parse_module(source).body)
        first = new[0]
        for at, line in enumerate(new[1:], 1):
            if isinstance(line, cst.FunctionDef):
                new[at] = line.with_changes(leading_lines=[cst.EmptyLine(indent=False)] * 2)
        new[0] = first.with_changes(leading_lines=statement.leading_lines)
        body += new
    return _with_ops(tree.with_changes(body=body))


def _with_ops(tree: cst.Module) -> cst.Module:
    for statement in tree.body:
        text = tree.code_for_node(statement).strip()
        if text.startswith("from keras import") and "ops" in text.replace(",", " ").split():
            return tree
    uses = any(isinstance(node, cst.Name) and node.value == "ops" for node in walk(tree))
    if not uses:
        return tree
    at = next((n + 1 for n, one in reversed(list(enumerate(tree.body))) if _is_import(one)), 0)
    line = cst.parse_statement("from keras import ops\n")
    return tree.with_changes(body=[*tree.body[:at], line, *tree.body[at:]])


def _is_import(statement: cst.CSTNode) -> bool:
    return isinstance(statement, cst.SimpleStatementLine) and isinstance(
        statement.body[0], (cst.Import, cst.ImportFrom)
    )
