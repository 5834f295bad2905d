"""What a file says beside its functions: what is compiled into a model, what changes later, what has metrics."""

from __future__ import annotations

from dataclasses import dataclass, field

import libcst as cst

from .source_file import SourceFile, children_of, dotted, walk

_WRAPPERS = {"LossFunctionWrapper": "loss", "MeanMetricWrapper": "metric", "add_loss": "loss", "value_and_grad": "loss"}
_BUILDING = frozenset({"__init__", "build", "reset_state", "reset_states", "from_config", "__setstate__"})


@dataclass
class Facts:
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


def facts_of(file: SourceFile) -> Facts:
    """The facts of a file, gathered once."""
    found = file.names.get("facts")
    if not isinstance(found, Facts):
        found = Facts()
        _gather(file.tree, found, "", "")
        file.names["facts"] = found
    return found


def _gather(
    node: cst.CSTNode, facts: Facts, owner: str, function: str, in_loop: bool = False, sets_others: bool = True
) -> None:
    if isinstance(node, cst.ClassDef):
        owner = node.name.value
        bases = [dotted(base.value) for base in node.bases]
        sets_others = any("Callback" in base for base in bases)
    elif isinstance(node, cst.FunctionDef):
        function = node.name.value
        in_loop = False
        for inner in walk(node):
            if isinstance(inner, cst.Global):
                names = {item.name.value for item in inner.names}
                for name in names & _assigned_in(node):
                    facts.changed.setdefault(name, set()).add(f"{owner}.{function}" if owner else function)
    elif isinstance(node, (cst.For, cst.While)):
        in_loop = True
    elif isinstance(node, cst.Call):
        _call(node, facts, function)
    elif isinstance(node, (cst.AssignTarget, cst.AugAssign)):
        _target(node.target, facts, owner, function, in_loop, sets_others)
    for child in children_of(node):
        _gather(child, facts, owner, function, in_loop, sets_others)


def _assigned_in(function: cst.FunctionDef) -> set[str]:
    found = set()
    for node in walk(function):
        if isinstance(node, (cst.AssignTarget, cst.AugAssign)):
            found |= {one.value for one in walk(node.target) if isinstance(one, cst.Name)}
    return found


def _target(target: cst.CSTNode, facts: Facts, owner: str, function: str, in_loop: bool, sets_others: bool) -> None:
    where = f"{owner}.{function}" if owner else function
    if isinstance(target, (cst.Tuple, cst.List)):
        for item in target.elements:
            _target(item.value, facts, owner, function, in_loop, sets_others)
    elif isinstance(target, cst.Name) and not function and in_loop:
        facts.changed.setdefault(target.value, set()).add("")
    elif isinstance(target, cst.Attribute):
        base = dotted(target.value)
        if base == "self":
            if function not in _BUILDING:
                facts.counted.add(target.attr.value)
        elif sets_others and (function or in_loop):
            facts.attributes.add(target.attr.value)
    elif isinstance(target, cst.Subscript) and function:
        inner = target.value
        while isinstance(inner, cst.Subscript):
            inner = inner.value
        if isinstance(inner, cst.Name):
            facts.changed.setdefault(inner.value, set()).add(where)


def _call(node: cst.Call, facts: Facts, function: str) -> None:
    name = dotted(node.func)
    short = name.rsplit(".", 1)[-1] if name else node.func.attr.value if isinstance(node.func, cst.Attribute) else ""
    keywords = {argument.keyword.value: argument.value for argument in node.args if argument.keyword is not None}
    positional = [argument.value for argument in node.args if argument.keyword is None and not argument.star]
    if short == "compile":
        if "loss" in keywords:
            _compiled(keywords["loss"], "loss", facts)
        elif len(positional) > 1:
            _compiled(positional[1], "loss", facts)
        for key in ("metrics", "weighted_metrics"):
            if key in keywords:
                _compiled(keywords[key], "metric", facts)
                facts.has_metrics = facts.has_metrics or not _is_empty(keywords[key])
    elif short in _WRAPPERS:
        for value in (*positional[:1], *(keywords[key] for key in ("fn", "func") if key in keywords)):
            _compiled(value, _WRAPPERS[short], facts)
    elif short.startswith("assign") and isinstance(node.func, cst.Attribute):
        facts.assigned.add(dotted(node.func.value).rsplit(".", 1)[-1])
    elif short == "set_value" and positional:
        facts.assigned.add(dotted(positional[0]).rsplit(".", 1)[-1])
    elif short == "setattr" and len(positional) == 3 and isinstance(positional[1], cst.SimpleString):
        facts.attributes.add(str(positional[1].evaluated_value))
    if not function and "." not in name:
        facts.called.add(name)


def _is_empty(node: cst.BaseExpression) -> bool:
    return isinstance(node, (cst.List, cst.Tuple)) and not node.elements


def _compiled(node: cst.BaseExpression, kind: str, facts: Facts) -> None:
    if isinstance(node, cst.Lambda):
        facts.lambdas[id(node)] = kind
    elif isinstance(node, (cst.Name, cst.Attribute)):
        facts.compiled[dotted(node).rsplit(".", 1)[-1]] = kind
    elif isinstance(node, cst.Call):
        facts.compiled[dotted(node.func).rsplit(".", 1)[-1]] = kind
        for argument in node.args:
            if isinstance(argument.value, (cst.Lambda, cst.Name)):
                _compiled(argument.value, kind, facts)
    elif isinstance(node, (cst.List, cst.Tuple)):
        for item in node.elements:
            _compiled(item.value, kind, facts)
    elif isinstance(node, cst.Dict):
        for entry in node.elements:
            _compiled(entry.value, kind, facts)
