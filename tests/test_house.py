"""House rules that a reader of one file cannot see: where imports point, lazy ones included, and that none circle."""

from __future__ import annotations

import ast
import functools
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import flatout

_ROOT = Path(flatout.__file__).parent
# Which rooms a room may import from (docs/ARCHITECTURE.md); itself always.
_BELOW: dict[str, set[str]] = {
    "base": set(),
    "seam": {"base"},
    "pysource": {"base"},
    "data": {"seam", "base"},
    "tables": {"pysource", "seam", "base"},
    "vectorize": {"pysource", "seam", "base"},
    "engines": {"data", "seam", "base"},
    "native": {"engines", "data", "seam", "base"},
    "training": {"native", "engines", "data", "vectorize", "tables", "seam", "base"},
    "fit": {"training", "data", "seam", "base"},
    "check": {"vectorize", "pysource", "seam", "base"},
    "runner": {"check", "fit", "training", "vectorize", "seam", "base"},
    "bench": {"fit", "native", "base"},
    "cli": {"runner", "bench", "check", "base"},
}
_EVERYTHING = ("__init__", "__main__")
_FILES_IN_A_FOLDER = 16
_LINES_OF_A_FILE = 400


def _module_name(path: Path) -> str:
    parts = path.relative_to(_ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if len(parts) > 1 and parts[-1] == "__init__" else parts)


@functools.cache
def _files() -> dict[str, Path]:
    return {_module_name(path): path for path in _ROOT.rglob("*.py")}


def _imports(path: Path) -> Iterator[str]:
    """The modules of flatout that a file imports from, anywhere in it, type checking included."""
    package = ["flatout", *path.relative_to(_ROOT).parts[:-1]]
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            named = [alias.name.split(".") for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            start = base + (node.module.split(".") if node.module else [])
            named = [[*start, alias.name] for alias in node.names]
        elif isinstance(node, (ast.Constant, ast.JoinedStr)):
            # `importlib.import_module(f"flatout.check.probing.{backend}_probe")`
            named = _named_in_text(node)
        else:
            continue
        for parts in named:
            if parts[0] == "flatout":
                yield _longest_module(parts[1:])


def _named_in_text(node: ast.Constant | ast.JoinedStr) -> list[list[str]]:
    start = node.values[0] if isinstance(node, ast.JoinedStr) and node.values else node
    text = start.value if isinstance(start, ast.Constant) else None
    is_module = isinstance(text, str) and text.startswith("flatout.") and text.replace(".", "").isidentifier()
    return [text.rstrip(".").split(".")] if is_module and isinstance(text, str) else []


def _longest_module(parts: list[str]) -> str:
    while parts and ".".join(parts) not in _files():
        parts = parts[:-1]
    return ".".join(parts) or "__init__"


@functools.cache
def _edges() -> dict[str, set[str]]:
    return {name: set(_imports(path)) - {name} for name, path in _files().items()}


def _circles(edges: dict[str, set[str]]) -> list[list[str]]:
    """Groups of names that reach each other (Tarjan)."""
    number: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found: list[list[str]] = []

    def visit(name: str) -> None:
        number[name] = low[name] = len(number)
        stack.append(name)
        for other in edges.get(name, ()):
            if other not in number:
                visit(other)
                low[name] = min(low[name], low[other])
            elif other in stack:
                low[name] = min(low[name], number[other])
        if low[name] == number[name]:
            at = stack.index(name)
            found.append(sorted(stack[at:]))
            del stack[at:]

    for name in edges:
        if name not in number:
            visit(name)
    return [group for group in found if len(group) > 1]


def _room(module: str) -> str:
    return module.partition(".")[0]


def test_imports_point_down() -> None:
    wrong = [
        f"{name} imports {other}"
        for name, others in sorted(_edges().items())
        for other in sorted(others)
        if _room(name) not in _EVERYTHING and _room(other) != _room(name) and _room(other) not in _BELOW[_room(name)]
    ]
    assert wrong == []


def test_the_picture_itself_has_no_circle() -> None:
    assert _circles(_BELOW) == []


def test_no_circle_of_more_than_two_files() -> None:
    # A package's own __init__ only re-exports.
    edges = {name: others - {"__init__"} for name, others in _edges().items() if name not in _EVERYTHING}
    assert [group for group in _circles(edges) if len(group) > 2] == []


def test_rooms_inside_a_room_do_not_circle() -> None:
    """Of the folders beside each other in a room; the files of the room itself put them together."""
    rooms: dict[str, set[str]] = {}
    for name, others in _edges().items():
        folder = _folder(name)
        beside = (_folder(other) for other in others if _room(other) == _room(name))
        rooms.setdefault(folder, set()).update(
            other for other in beside if not folder.startswith(other) and not other.startswith(folder)
        )
    assert _circles(rooms) == []


def _folder(module: str) -> str:
    return module.rpartition(".")[0] if _files()[module].name != "__init__.py" else module


def test_folders_are_small_enough_to_be_read_at_a_glance() -> None:
    counts = Counter(path.parent.relative_to(_ROOT) for path in _ROOT.rglob("*") if path.is_file() and _is_ours(path))
    assert {str(folder): count for folder, count in counts.items() if count > _FILES_IN_A_FOLDER} == {}


def test_files_are_small_enough_to_be_read_in_one_go() -> None:
    lengths = {name: len(path.read_text().splitlines()) for name, path in _files().items()}
    assert {name: length for name, length in lengths.items() if length > _LINES_OF_A_FILE} == {}


def test_a_file_name_means_one_thing() -> None:
    # Every backend's engine has the same two files.
    per_backend = {"engine", "sink"}
    names = Counter(path.stem for path in _files().values() if path.name != "__init__.py")
    assert {name for name, count in names.items() if count > 1} <= per_backend


def test_a_class_name_means_one_thing() -> None:
    names: Counter[str] = Counter()
    for path in _files().values():
        public = (node.name for node in ast.parse(path.read_text()).body if isinstance(node, ast.ClassDef))
        names.update(name for name in public if not name.startswith("_"))
    assert {name for name, count in names.items() if count > 1} == set()


def test_keras_internals_are_touched_in_the_seam_and_the_engines_alone() -> None:
    touching = {
        name
        for name, path in _files().items()
        if "keras.src" in path.read_text() and _room(name) not in ("seam", "engines")
    }
    assert touching == set()


def _is_ours(path: Path) -> bool:
    return "__pycache__" not in path.parts
