"""The public names, and the house rules that a reader cannot see: what `import flatout` loads, where imports point."""

from __future__ import annotations

import ast
import importlib
import subprocess
import sys
from pathlib import Path

import pytest

import flatout

_ROOT = Path(flatout.__file__).parent
# Lower floors know nothing of higher ones (DESIGN.md, section 3).
_FLOORS = (
    {"disk_cache", "errors", "options", "report"},
    {"data"},
    {"engines", "native", "losses", "state"},
    {"cluster", "many", "doctor"},
    {"arguments", "host_logs", "ledger", "loops", "passes", "prepare", "to_file", "validation"},
    {"fit"},
    {"bench", "runner"},
    {"cli"},
    {"__init__", "__main__"},
)


def test_all_is_sorted_and_importable() -> None:
    assert flatout.__all__ == sorted(flatout.__all__)
    for name in flatout.__all__:
        assert getattr(flatout, name).__module__ == "flatout", name


def test_nothing_public_is_missing_from_all() -> None:
    modules = {path.stem for path in _ROOT.iterdir()}
    names = {name for name in vars(flatout) if not name.startswith("_")}
    assert names - modules <= set(flatout.__all__)
    assert set(flatout.__all__) <= names


def test_names_that_are_also_modules_stay_functions() -> None:
    importlib.import_module("flatout.fit")
    importlib.import_module("flatout.options")
    assert callable(flatout.fit)
    assert callable(flatout.options)


def test_import_loads_no_backend_no_keras_and_no_tables() -> None:
    absent = [
        "keras",
        "jax",
        "tensorflow",
        "torch",
        "pandas",
        "pyarrow",
        "ray",
        "cuda",
        "cupy",
        "rich",
        "IPython",
        "libcst",
    ]
    code = f"import flatout, flatout.cli, sys; print([name for name in {absent} if name in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=_ROOT.parent, capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout == "[]\n"


@pytest.mark.parametrize("path", sorted(_ROOT.rglob("*.py")), ids=lambda path: str(path.relative_to(_ROOT)))
def test_imports_point_down(path: Path) -> None:
    part = path.relative_to(_ROOT).parts[0].removesuffix(".py")
    for imported in _imported_parts(path):
        assert _floor(imported) <= _floor(part), f"{path}: {part} must not import {imported}"


def test_every_file_has_a_floor() -> None:
    parts = {path.relative_to(_ROOT).parts[0].removesuffix(".py") for path in _ROOT.rglob("*.py")}
    assert parts <= set().union(*_FLOORS)


def _floor(part: str) -> int:
    return next(number for number, floor in enumerate(_FLOORS) if part in floor)


def _imported_parts(path: Path) -> set[str]:
    """The files and folders directly under flatout/ from which a file imports, anywhere in it."""
    package = ["flatout", *path.relative_to(_ROOT).parts[:-1]]
    modules: list[list[str]] = []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            modules += [alias.name.split(".") for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            start = base + (node.module.split(".") if node.module else [])
            modules += [[*start, alias.name] for alias in node.names]
    ours = (module for module in modules if module[0] == "flatout" and len(module) > 1)
    # `from . import __version__` names no file.
    known = set().union(*_FLOORS)
    return {module[1] for module in ours if module[1] in known}
