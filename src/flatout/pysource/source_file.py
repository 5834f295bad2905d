"""Source files as libCST trees with positions, the names that they import, and the files that they import from."""

from __future__ import annotations

import dataclasses
import re
import tokenize
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import libcst as cst
from libcst.metadata import MetadataWrapper, PositionProvider

from flatout.base.errors import Unparsable

_NOQA = re.compile(r"#\s*flatout:\s*noqa(?:\s*\[(?P<codes>[A-Z0-9,\s]+)\])?", re.IGNORECASE)
FRAMEWORKS = ("keras", "tensorflow", "torch", "jax", "keras_core", "tf_keras", "flatout")
_KERAS_IMPORT = re.compile(r"^\s*(?:from|import)\s+(?:keras|tensorflow)\b", re.MULTILINE)
_FRAMEWORK_IMPORT = re.compile(rf"^\s*(?:from|import)\s+(?:{'|'.join(FRAMEWORKS)})\b", re.MULTILINE)
# Never looked up as files of the user, even when their own sources are checked.
LIBRARIES = frozenset((*FRAMEWORKS, "numpy", "pandas", "polars", "scipy", "sklearn", "cv2", "skimage", "os", "math"))


@dataclass(frozen=True)
class Place:
    """Line and column, both counted from one."""

    line: int
    column: int


@dataclass(eq=False)
class SourceFile:
    """One file: its tree, where its nodes are, and which lines are excused from which rules."""

    path: Path
    text: str
    names: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def read(cls, path: Path) -> SourceFile:
        """Read a file in the encoding that it declares."""
        try:
            with tokenize.open(path) as file:
                return cls(path, file.read())
        except (SyntaxError, UnicodeDecodeError) as error:
            raise Unparsable(
                f"{path} cannot be read as Python. Received: {error}. Fix the file, or exclude it."
            ) from error

    @cached_property
    def _wrapped(self) -> MetadataWrapper:
        try:
            # The parser never uses a node twice, so the deep copy that the wrapper would make is not needed.
            return MetadataWrapper(cst.parse_module(self.text), unsafe_skip_copy=True)
        except cst.ParserSyntaxError as error:
            raise Unparsable(
                f"{self.path}:{error.raw_line}: not valid Python. Received: {error.message}. Fix or exclude the file."
            ) from error

    @property
    def tree(self) -> cst.Module:
        """The tree."""
        return self._wrapped.module

    @cached_property
    def _positions(self) -> Any:
        return self._wrapped.resolve(PositionProvider)

    def place(self, node: cst.CSTNode) -> Place:
        """Where a node begins."""
        start = self._positions[node].start
        return Place(start.line, start.column + 1)

    def lines(self, node: cst.CSTNode) -> tuple[int, int]:
        """The first and the last line of a node."""
        span = self._positions[node]
        return span.start.line, span.end.line

    def code(self, node: cst.CSTNode) -> str:
        """The source text of a node."""
        return self.tree.code_for_node(node).strip()

    @cached_property
    def excused(self) -> dict[int, frozenset[str] | None]:
        """Line to the codes that a `# flatout: noqa` names, or None for all of them."""
        found: dict[int, frozenset[str] | None] = {}
        for number, line in enumerate(self.text.splitlines(), 1):
            if "#" in line and (match := _NOQA.search(line)):
                codes = match["codes"]
                found[number] = frozenset(re.split(r"[,\s]+", codes.upper().strip())) if codes else None
        return found

    @cached_property
    def uses_keras(self) -> bool:
        """Whether Keras or TensorFlow is imported anywhere in the file."""
        return bool(_KERAS_IMPORT.search(self.text))

    @cached_property
    def uses_a_framework(self) -> bool:
        """Whether Keras or a backend is imported anywhere in the file."""
        return bool(_FRAMEWORK_IMPORT.search(self.text))


def dotted(node: cst.BaseExpression | None) -> str:
    """`a.b.c` of names and attributes; empty for anything else."""
    if isinstance(node, cst.Name):
        return node.value
    if isinstance(node, cst.Attribute):
        base = dotted(node.value)
        return f"{base}.{node.attr.value}" if base else ""
    return ""


def walk(node: cst.CSTNode) -> Iterator[cst.CSTNode]:
    """A node and everything in it, outside in, in the order of the text; white space is left out."""
    queue = [node]
    while queue:
        one = queue.pop()
        yield one
        queue.extend(reversed(children_of(one)))


def children_of(node: cst.CSTNode) -> list[cst.CSTNode]:
    """What a node is made of, without white space and punctuation.

    libCST's own `children` visits every field through its visitors; that took two thirds of a run.
    """
    kind = type(node)
    names = _FIELDS.get(kind)
    if names is None:
        fields = dataclasses.fields(kind)
        names = _FIELDS[kind] = tuple(one.name for one in fields if not one.name.startswith(_LAYOUT))
    found: list[cst.CSTNode] = []
    for name in names:
        value = getattr(node, name)
        if isinstance(value, cst.CSTNode):
            found.append(value)
        elif isinstance(value, (list, tuple)):
            found += [one for one in value if isinstance(one, cst.CSTNode)]
    return found


_FIELDS: dict[type, tuple[str, ...]] = {}
_LAYOUT = (
    "whitespace", "lpar", "rpar", "lbracket", "rbracket", "lbrace", "rbrace", "leading_lines", "header", "comma",
    "semicolon", "trailing", "footer", "lines_after", "equal", "asynchronous", "indent", "dot", "colon",
)  # fmt: skip


class Project:
    """The files that belong together, read once; imports are looked up beside the importing file and above it."""

    def __init__(self) -> None:
        self._files: dict[Path, SourceFile | None] = {}

    def file(self, path: Path) -> SourceFile:
        """The file at a path."""
        path = path.resolve()
        file = self._files.get(path)
        if file is None:
            file = self._files[path] = SourceFile.read(path)
        return file

    def put(self, file: SourceFile) -> None:
        """Take a file as given, whatever is on disk."""
        self._files[file.path.resolve()] = file

    def imported(self, by: SourceFile, module: str, level: int) -> SourceFile | None:
        """The file of a module that is the user's own; None for libraries."""
        parts = module.split(".") if module else []
        if not level and (not parts or parts[0] in LIBRARIES):
            return None
        if level:
            bases = [by.path.resolve().parents[level - 1]] if level <= len(by.path.resolve().parents) else []
        else:
            bases = _roots(by.path.resolve())
        for base in bases:
            target = base.joinpath(*parts)
            for candidate in (target.with_suffix(".py") if parts else target, target / "__init__.py"):
                if candidate.suffix == ".py" and candidate.is_file() and candidate.resolve() != by.path.resolve():
                    try:
                        file = self.file(candidate)
                        _ = file.tree
                    except Unparsable:
                        return None
                    return file
        return None


def _roots(path: Path) -> list[Path]:
    """The folder of a file and those above it, up to the project's root or six levels."""
    folders: list[Path] = []
    for folder in path.parents[:6]:
        if folder.name == "site-packages":
            break
        folders += [folder, folder / "src"] if (folder / "src").is_dir() else [folder]
        if (folder / "pyproject.toml").exists() or (folder / ".git").exists() or (folder / "setup.py").exists():
            break
    return folders
