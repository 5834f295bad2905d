"""Loops as array code, written into the file: what `flatout.vectorize` verified, in the place of the function."""

from __future__ import annotations

import ast
import builtins
import contextlib
import importlib
import inspect
import re
import symtable
import sys
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from flatout.check.probing.live_functions import Inputs, described, imported, usual
from flatout.check.rules.rule import Finding
from flatout.pysource.source_file import SourceFile
from flatout.pysource.trees import first_line, method_name, names_in, walk
from flatout.vectorize.decorator import vectorize
from flatout.vectorize.verify.gradients import value_and_gradient

from .line_fixes import Edit, edited

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
    """The rewrites of a file's functions that have findings; the file is imported to verify them.

    With `unsafe` also those that were not verified. `given` is what the arrays look like; else a comment may say so.
    """
    wanted = {one.function for one in findings if one.code.startswith(_ANSWERED) and "." not in one.function}
    loops = {one.function for one in findings if one.code.startswith(("FO10", "FO401", "FO201", "FO205"))}
    names = [
        one.name
        for one in file.tree.body
        if isinstance(one, ast.FunctionDef) and not one.decorator_list and one.name in wanted & loops
    ]
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
    return Rewritten(name, source, "verified equal in value and gradient" if applied else f"not verified: {reason}")


def _problem(function: Any, source: str, name: str, inputs: Inputs | None, has_example: bool) -> str:
    """Why a verified rewrite must not be written: shapes that the original takes and for which it gives something else.

    `flatout.vectorize` looks at the ranks at every call; source in a file cannot.
    """
    namespace = {"ops": importlib.import_module("keras.ops"), **function.__globals__}
    exec(compile(source, f"<rewrite of {name}>", "exec"), namespace)
    parameters = list(inspect.signature(function).parameters)
    compared = has_example
    for one in [inputs] if inputs is not None else usual(function, *parameters[:2]):
        for batch in (1, 7):
            values = one.draw(batch, seed=batch)
            try:
                wanted, _ = value_and_gradient(function, values, None)
            except Exception:
                continue
            # An empty slice, or 0 / 0: what the rewrite gives there is its note's matter.
            if np.isnan(wanted).any():
                continue
            compared = True
            if not _is_equal(namespace[name], values, wanted):
                shapes = " ".join(f"{key}={value.dtype}{list(value.shape)}" for key, value in values.items())
                return f"the rewrite is not equal for {shapes}."
    return "" if compared else "the original ran with none of the shapes, so its rewrite could not be compared."


def _is_equal(function: Any, values: dict[str, np.ndarray], wanted: np.ndarray) -> bool:
    try:
        found, _ = value_and_gradient(function, values, None)
    except Exception:
        return False
    return found.shape == wanted.shape and np.allclose(found, wanted, rtol=1e-4, atol=1e-6)


def _missing_names(source: str, namespace: dict[str, Any]) -> list[str]:
    """The names that a rewrite uses and that neither it nor the module defines."""
    module = symtable.symtable(source, "<rewrite>", "exec")
    own = {one.get_name() for one in module.get_symbols() if one.is_assigned() or one.is_imported()}
    return sorted(_globals(module) - own - {"ops"} - set(namespace) - set(dir(builtins)))


def _globals(table: symtable.SymbolTable) -> set[str]:
    found = {one.get_name() for one in table.get_symbols() if one.is_global() and one.is_referenced()}
    return found.union(*map(_globals, table.get_children()))


def trains_at_import(tree: ast.Module) -> bool:
    """Whether `.fit(` is called outside functions and outside `if __name__ == "__main__"`."""
    run = [
        one
        for one in tree.body
        if not isinstance(one, (ast.FunctionDef, ast.ClassDef))
        and not (isinstance(one, ast.If) and "__name__" in names_in(one.test))
    ]
    return any(method_name(node) in ("fit", "train") for node in walk(run))


def with_rewrites(file: SourceFile, rewrites: list[Rewritten]) -> str:
    """The file's text with functions replaced by their rewrites, and `ops` imported."""
    sources = {one.name: one.source for one in rewrites if one.source is not None}
    edits = []
    for statement in file.tree.body:
        source = sources.get(statement.name) if isinstance(statement, ast.FunctionDef) else None
        if source is not None:
            last = statement.end_lineno or statement.lineno
            # Comments at the end of the body go with it.
            for number in range(last, len(file.lines)):
                line = file.lines[number].strip()
                if line.startswith("#") and file.lines[number][:1].isspace():
                    last = number + 1
                elif line:
                    break
            # What it computes once stands above the function.
            spaced = re.sub(r"\n(?=def )", "\n\n\n", source)
            edits.append(Edit(file.line_begin(statement.lineno), file.line_begin(last + 1), spaced))
    return _with_ops(SourceFile(file.path, edited(file.text, edits))) if edits else file.text


def _with_ops(file: SourceFile) -> str:
    for statement in file.tree.body:
        text = file.code(statement)
        if text.startswith("from keras import") and "ops" in text.replace(",", " ").split():
            return file.text
    if "ops" not in names_in(file.tree):
        return file.text
    imports = [one for one in file.tree.body if isinstance(one, (ast.Import, ast.ImportFrom))]
    last = imports[-1].end_lineno or 0 if imports else first_line(file.tree.body[0]) - 1
    place = file.line_begin(last + 1)
    return edited(file.text, [Edit(place, place, "from keras import ops\n")])
