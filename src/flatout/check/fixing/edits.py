"""Changes of a file's text by place, so that comments and layout stay as they are."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable
from dataclasses import dataclass

from flatout.pysource.source_file import SourceFile
from flatout.pysource.trees import first_line


@dataclass(frozen=True, order=True)
class Edit:
    """Another text from one place to another."""

    begin: int
    end: int
    text: str = ""


def edited(text: str, edits: Iterable[Edit]) -> str:
    """The text after all changes; of two that overlap, the one that begins first."""
    parts: list[str] = []
    at = 0
    for one in sorted(edits, key=lambda edit: edit.begin):
        if one.begin >= at:
            parts += [text[at : one.begin], one.text]
            at = one.end
    return "".join([*parts, text[at:]])


def lead_of(file: SourceFile, node: ast.stmt) -> int:
    """The first of the blank lines and comments that stand above a statement and belong to it."""
    number = first_line(node)
    while number > 1:
        line = file.lines[number - 2]
        stripped = line.strip()
        indent = len(line) - len(line.lstrip())
        if stripped and (not stripped.startswith("#") or indent > node.col_offset):
            break
        number -= 1
    return number


def is_alone(file: SourceFile, node: ast.stmt) -> bool:
    """Whether nothing else stands on the lines of a statement."""
    begin, end = file.span(node)
    before = file.text[file.line_begin(node.lineno) : begin]
    behind = file.text[end : file.line_begin((node.end_lineno or 0) + 1)]
    return not before.strip() and re.fullmatch(r"\s*(#.*)?\s*", behind) is not None
