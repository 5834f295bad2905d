"""Entries and attributes that a loop assigns, as names: `state["h"]`, `memory[0]` and `self.h` hold a value each."""

from __future__ import annotations

import ast
import copy
from collections.abc import Mapping

from .trees import LoopNode, assigned_targets, dotted, walk


def entries_as_names(loop: LoopNode) -> tuple[LoopNode, dict[str, str]]:
    """A loop in which every entry with a fixed key, and every attribute, that it assigns is a name of its own.

    Args:
        loop: The loop.

    Returns:
        The loop, and how each of the new names was spelled.
    """
    targets = [
        one
        for target in assigned_targets(loop.body)
        for one in (target.elts if isinstance(target, (ast.Tuple, ast.List)) else (target,))
    ]
    texts = {text for target in targets if (text := _fixed(target))}
    # What is read at other places, too, is a table.
    tables = {dotted(node.value) for node in walk(loop.body) if isinstance(node, ast.Subscript) and not _fixed(node)}
    names = {
        text: f"_entry_{number}" for number, text in enumerate(sorted(texts)) if text.partition("[")[0] not in tables
    }
    if not names:
        return loop, {}
    return _Entries(names).visit(copy.deepcopy(loop)), {name: text for text, name in names.items()}


def _fixed(node: ast.AST) -> str:
    """How an attribute, or an entry with a literal for its key, is spelled; "" for anything else."""
    if isinstance(node, ast.Attribute):
        return dotted(node)
    if not isinstance(node, ast.Subscript) or not isinstance(node.slice, ast.Constant) or not dotted(node.value):
        return ""
    key = node.slice.value
    return f"{dotted(node.value)}[{key!r}]" if type(key) in (str, bytes, int) else ""


class _Entries(ast.NodeTransformer):
    def __init__(self, names: Mapping[str, str]):
        self._names = names

    def _named(self, node: ast.Subscript | ast.Attribute) -> ast.AST:
        name = self._names.get(_fixed(node))
        return self.generic_visit(node) if name is None else ast.Name(name, node.ctx)

    visit_Subscript = visit_Attribute = _named
