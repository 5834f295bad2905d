"""Reads a module without importing it: its functions, and of its variables those that are imports or constants."""

from __future__ import annotations

import ast
import importlib
from typing import Any

from .values import Refused

# Imported to know what their functions are called; a user's own modules are not.
_KNOWN = ("keras", "numpy", "math", "itertools", "pandas", "tensorflow", "torch", "jax", "bisect", "logging", "sklearn")


def find_function(source: str, name: str) -> ast.FunctionDef:
    """The syntax tree of `function` or `Class.method`."""
    body: list[Any] = ast.parse(source).body
    found: Any = None
    for part in name.split("."):
        found = next(
            (node for node in body if isinstance(node, (ast.FunctionDef, ast.ClassDef)) and node.name == part), None
        )
        if found is None:
            raise Refused(f"There is no function {name!r} in the source.")
        body = found.body
    if not isinstance(found, ast.FunctionDef):
        raise Refused(f"{name!r} is a class.")
    return found


def static_namespace(source: str) -> dict[str, Any]:
    """What the top-level names of a module are, as far as the source tells."""
    names: dict[str, Any] = {}
    for node in ast.parse(source).body:
        if isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name.partition(".")[0] in _KNOWN:
                    _set(
                        names,
                        alias.asname or alias.name.partition(".")[0],
                        alias.name if alias.asname else alias.name.partition(".")[0],
                    )
        elif isinstance(node, ast.ImportFrom) and not node.level and (node.module or "").partition(".")[0] in _KNOWN:
            for alias in node.names:
                _set(names, alias.asname or alias.name, f"{node.module}.{alias.name}")
        elif isinstance(node, ast.Assign):
            for target in node.targets:
                if isinstance(target, ast.Name):
                    try:
                        names[target.id] = ast.literal_eval(node.value)
                    except ValueError:
                        continue
    return names


def _set(names: dict[str, Any], name: str, path: str) -> None:
    try:
        names[name] = importlib.import_module(path)
    except ImportError:
        holder, _, last = path.rpartition(".")
        try:
            names[name] = getattr(importlib.import_module(holder), last)
        except (ImportError, AttributeError, ValueError):
            return
