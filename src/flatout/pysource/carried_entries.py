"""Entries and attributes that a loop assigns, as names: `state["h"]`, `memory[0]` and `self.h` hold a value each."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import libcst as cst

from .source_file import dotted, walk


def entries_as_names(loop: Any) -> tuple[Any, dict[str, str]]:
    """A loop in which every entry with a fixed key, and every attribute, that it assigns is a name of its own.

    Args:
        loop: The loop.

    Returns:
        The loop, and how each of the new names was spelled.
    """
    texts = {text for target in _targets(loop.body) if (text := _fixed(target))}
    # What is read at other places, too, is a table.
    tables = {dotted(node.value) for node in walk(loop.body) if isinstance(node, cst.Subscript) and not _fixed(node)}
    names = {
        text: f"_entry_{number}" for number, text in enumerate(sorted(texts)) if text.partition("[")[0] not in tables
    }
    if not names:
        return loop, {}
    return loop.visit(_Entries(names)), {name: text for text, name in names.items()}


def _targets(body: cst.CSTNode) -> Iterator[cst.CSTNode]:
    for node in walk(body):
        if isinstance(node, (cst.AssignTarget, cst.AugAssign)):
            target = node.target
            yield from (
                (item.value for item in target.elements) if isinstance(target, (cst.Tuple, cst.List)) else (target,)
            )


def _fixed(node: cst.CSTNode) -> str:
    """How an attribute, or an entry with a literal for its key, is spelled; "" for anything else."""
    if isinstance(node, cst.Attribute):
        return dotted(node)
    if not isinstance(node, cst.Subscript) or len(node.slice) != 1 or not dotted(node.value):
        return ""
    index = node.slice[0].slice
    key = index.value if isinstance(index, cst.Index) else None
    if isinstance(key, cst.SimpleString):
        return f"{dotted(node.value)}[{key.evaluated_value!r}]"
    return f"{dotted(node.value)}[{key.value}]" if isinstance(key, cst.Integer) else ""


class _Entries(cst.CSTTransformer):
    def __init__(self, names: Mapping[str, str]):
        super().__init__()
        self._names = names

    def leave_Subscript(self, original_node: cst.Subscript, updated_node: cst.Subscript) -> cst.BaseExpression:
        name = self._names.get(_fixed(original_node))
        return updated_node if name is None else cst.Name(name)

    def leave_Attribute(self, original_node: cst.Attribute, updated_node: cst.Attribute) -> cst.BaseExpression:
        name = self._names.get(_fixed(original_node))
        return updated_node if name is None else cst.Name(name)
