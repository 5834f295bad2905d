"""What a file says beside its functions: what is compiled into a model, what changes later, what has metrics."""

from __future__ import annotations

import ast
from dataclasses import dataclass, field

from .source_file import SourceFile
from .trees import (
    assigned_targets,
    dotted,
    keyword_values,
    last_name,
    method_name,
    names_in,
    plain_arguments,
    text_of,
    walk,
)

_WRAPPERS = {"LossFunctionWrapper": "loss", "MeanMetricWrapper": "metric", "add_loss": "loss", "value_and_grad": "loss"}
_BUILDING = frozenset({"__init__", "build", "reset_state", "reset_states", "from_config", "__setstate__"})


@dataclass
class FileFacts:
    """Names by what happens to them.

    Attributes:
        compiled: Name of a function or class to "loss" or "metric", as `compile` and wrappers are given it.
        lambdas: The same for lambdas, by the identity of the node.
        changed: Globals, or containers, that some function changes, with the functions that do.
        attributes: Attributes of objects that are set from outside the object.
        assigned: Variables with a call of `.assign`.
        called: Functions that are called directly outside any function.
        has_metrics: A model is compiled with metrics.
    """

    compiled: dict[str, str] = field(default_factory=dict)
    lambdas: dict[int, str] = field(default_factory=dict)
    changed: dict[str, set[str]] = field(default_factory=dict)
    attributes: set[str] = field(default_factory=set)
    counted: set[str] = field(default_factory=set)
    assigned: set[str] = field(default_factory=set)
    called: set[str] = field(default_factory=set)
    has_metrics: bool = False


def facts_of(file: SourceFile) -> FileFacts:
    """The facts of a file, gathered once."""
    found = file.names.get("facts")
    if not isinstance(found, FileFacts):
        found = FileFacts()
        _gather(file.tree, found, "", "")
        file.names["facts"] = found
    return found


def _gather(
    node: ast.AST, facts: FileFacts, owner: str, function: str, in_loop: bool = False, sets_others: bool = True
) -> None:
    if isinstance(node, ast.ClassDef):
        owner = node.name
        sets_others = any("Callback" in dotted(base) for base in node.bases)
    elif isinstance(node, ast.FunctionDef):
        function = node.name
        in_loop = False
        declared = {name for inner in walk(node) if isinstance(inner, ast.Global) for name in inner.names}
        for name in declared & names_in(assigned_targets(node)):
            facts.changed.setdefault(name, set()).add(f"{owner}.{function}" if owner else function)
    elif isinstance(node, (ast.For, ast.While)):
        in_loop = True
    elif isinstance(node, ast.Call):
        _call(node, facts, function)
    elif isinstance(node, (ast.Assign, ast.AugAssign)):
        for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
            _target(target, facts, owner, function, in_loop, sets_others)
    for child in ast.iter_child_nodes(node):
        _gather(child, facts, owner, function, in_loop, sets_others)


def _target(target: ast.AST, facts: FileFacts, owner: str, function: str, in_loop: bool, sets_others: bool) -> None:
    if isinstance(target, (ast.Tuple, ast.List)):
        for item in target.elts:
            _target(item, facts, owner, function, in_loop, sets_others)
    elif isinstance(target, ast.Name) and not function and in_loop:
        facts.changed.setdefault(target.id, set()).add("")
    elif isinstance(target, ast.Attribute):
        if dotted(target.value) == "self":
            if function not in _BUILDING:
                facts.counted.add(target.attr)
        elif sets_others and (function or in_loop):
            facts.attributes.add(target.attr)
    elif isinstance(target, ast.Subscript) and function:
        inner = target.value
        while isinstance(inner, ast.Subscript):
            inner = inner.value
        if isinstance(inner, ast.Name):
            facts.changed.setdefault(inner.id, set()).add(f"{owner}.{function}" if owner else function)


def _call(node: ast.Call, facts: FileFacts, function: str) -> None:
    name = dotted(node.func)
    short = name.rpartition(".")[2] or method_name(node)
    keywords = keyword_values(node)
    positional = plain_arguments(node)
    if short == "compile":
        if "loss" in keywords:
            _compiled(keywords["loss"], "loss", facts)
        elif len(positional) > 1:
            _compiled(positional[1], "loss", facts)
        for key in ("metrics", "weighted_metrics"):
            if key in keywords:
                _compiled(keywords[key], "metric", facts)
                is_empty = isinstance(keywords[key], (ast.List, ast.Tuple)) and not keywords[key].elts  # type: ignore[attr-defined]
                facts.has_metrics = facts.has_metrics or not is_empty
    elif short in _WRAPPERS:
        for value in (*positional[:1], *(keywords[key] for key in ("fn", "func") if key in keywords)):
            _compiled(value, _WRAPPERS[short], facts)
    elif short.startswith("assign") and isinstance(node.func, ast.Attribute):
        facts.assigned.add(last_name(node.func.value))
    elif short == "set_value" and positional:
        facts.assigned.add(last_name(positional[0]))
    elif short == "setattr" and len(positional) == 3 and text_of(positional[1]) is not None:
        facts.attributes.add(str(text_of(positional[1])))
    if not function and "." not in name:
        facts.called.add(name)


def _compiled(node: ast.AST, kind: str, facts: FileFacts) -> None:
    if isinstance(node, ast.Lambda):
        facts.lambdas[id(node)] = kind
    elif isinstance(node, (ast.Name, ast.Attribute)):
        facts.compiled[last_name(node)] = kind
    elif isinstance(node, ast.Call):
        facts.compiled[last_name(node.func)] = kind
        for argument in (*node.args, *keyword_values(node).values()):
            if isinstance(argument, (ast.Lambda, ast.Name)):
                _compiled(argument, kind, facts)
    elif isinstance(node, (ast.List, ast.Tuple)):
        for item in node.elts:
            _compiled(item, kind, facts)
    elif isinstance(node, ast.Dict):
        for value in node.values:
            _compiled(value, kind, facts)
