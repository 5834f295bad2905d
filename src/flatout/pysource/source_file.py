"""Source files: their syntax trees, the text of each node, excused lines, and the files that they import from."""

from __future__ import annotations

import ast
import re
import tokenize
from dataclasses import dataclass, field
from functools import cached_property
from itertools import accumulate
from pathlib import Path
from typing import Any, NamedTuple

from flatout.base.errors import Unparsable

_NOQA = re.compile(r"#\s*flatout:\s*noqa(?:\s*\[(?P<codes>[A-Z0-9,\s]+)\])?", re.IGNORECASE)
FRAMEWORKS = ("keras", "tensorflow", "torch", "jax", "keras_core", "tf_keras", "flatout")
# Never looked up as files of the user, even when their own sources are checked.
LIBRARIES = frozenset((*FRAMEWORKS, "numpy", "pandas", "polars", "scipy", "sklearn", "cv2", "skimage", "os", "math"))


class SourcePlace(NamedTuple):
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
    def tree(self) -> ast.Module:
        try:
            return ast.parse(self.text)
        except (SyntaxError, ValueError) as error:
            line, problem = getattr(error, "lineno", 1), getattr(error, "msg", error)
            raise Unparsable(
                f"{self.path}:{line}: not valid Python. Received: {problem}. Fix or exclude the file."
            ) from error

    @cached_property
    def lines(self) -> list[str]:
        """The lines, each with its end."""
        return re.split(r"(?<=\n)", self.text)

    @cached_property
    def _line_starts(self) -> list[int]:
        return [0, *accumulate(map(len, self.lines))]

    def _offset(self, line: int, column: int) -> int:
        """Where in the text a position of the parser is, which counts bytes."""
        text = self.lines[line - 1]
        return self._line_starts[line - 1] + (column if text.isascii() else len(text.encode()[:column].decode()))

    def span(self, node: Any) -> tuple[int, int]:
        """Where the text of a node begins and ends."""
        return self._offset(node.lineno, node.col_offset), self._offset(node.end_lineno, node.end_col_offset)

    def code(self, node: ast.AST) -> str:
        """The source text of a node."""
        begin, end = self.span(node)
        return self.text[begin:end]

    def line_begin(self, number: int) -> int:
        """Where a line begins; lines are counted from one."""
        return self._line_starts[min(number, len(self.lines) + 1) - 1]

    def indent(self, node: ast.stmt) -> str:
        """The white space before a statement."""
        return self.lines[node.lineno - 1][: node.col_offset]

    def place(self, node: Any) -> SourcePlace:
        """Where a node begins."""
        if isinstance(node, ast.GeneratorExp):
            node = node.elt  # In a call its brackets are the call's.
        begin = self._line_starts[node.lineno - 1]
        return SourcePlace(node.lineno, self._offset(node.lineno, node.col_offset) - begin + 1)

    @cached_property
    def excused(self) -> dict[int, frozenset[str] | None]:
        """Line to the codes that a `# flatout: noqa` names, or None for all of them."""
        found: dict[int, frozenset[str] | None] = {}
        for number, line in enumerate(self.lines, 1):
            if "#" in line and (match := _NOQA.search(line)):
                codes = match["codes"]
                found[number] = frozenset(re.split(r"[,\s]+", codes.upper().strip())) if codes else None
        return found

    def is_excused(self, code: str, *lines: int) -> bool:
        """Whether a comment on one of the lines excuses it from a rule."""
        named = [self.excused.get(line, frozenset()) for line in lines]
        return any(codes is None or code in codes for codes in named)

    def imports(self, *libraries: str) -> bool:
        """Whether one of the libraries is imported anywhere in the file."""
        return re.search(rf"^\s*(?:from|import)\s+(?:{'|'.join(libraries)})\b", self.text, re.MULTILINE) is not None


class Project:
    """The files that belong together, read once; imports are looked up beside the importing file and above it."""

    def __init__(self) -> None:
        self._files: dict[Path, SourceFile] = {}

    def file(self, path: Path) -> SourceFile:
        """The file at a path."""
        path = path.resolve()
        if path not in self._files:
            self._files[path] = SourceFile.read(path)
        return self._files[path]

    def put(self, file: SourceFile) -> None:
        """Take a file as given, whatever is on disk."""
        self._files[file.path.resolve()] = file

    def imported(self, by: SourceFile, module: str, level: int) -> SourceFile | None:
        """The file of a module that is the user's own; None for libraries."""
        parts = module.split(".") if module else []
        if not level and (not parts or parts[0] in LIBRARIES):
            return None
        here = by.path.resolve()
        for base in here.parents[level - 1 : level] if level else _roots(here):
            target = base.joinpath(*parts)
            for candidate in (target.with_suffix(".py") if parts else target, target / "__init__.py"):
                if candidate.suffix == ".py" and candidate.is_file() and candidate.resolve() != here:
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
        if any((folder / name).exists() for name in ("pyproject.toml", ".git", "setup.py")):
            break
    return folders
