"""What a file says beside its functions: what is compiled into a model, what changes later, what has metrics."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from .source_file import SourceFile
from .trees import dotted, given_values, last_name, leaves, method_name, parameters, text_of, walk

_FITS = ("fit", "train_on_batch", "train")
# Methods that change a dict, a set or an array in place; lists grow in losses all the time.
_CHANGES = ("update", "fill", "clear", "setdefault", "itemset")
_WRAPPERS = {"LossFunctionWrapper": "loss", "MeanMetricWrapper": "metric", "add_loss": "loss", "value_and_grad": "loss"}


@dataclass
class FileFacts:
    """Names by what happens to them."""

    # What `compile` and wrappers are given as "loss" or "metric": functions and classes by name, lambdas by identity.
    compiled: dict[str, str] = field(default_factory=dict)
    lambdas: dict[int, str] = field(default_factory=dict)
    # Globals, or containers, that some function changes, with the functions that do.
    changed: defaultdict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    # Globals that a loop sets in which a model is fitted again and again.
    changed_between_fits: set[str] = field(default_factory=set)
    # By the identity of a function that loops make: the loops' variables.
    bound_late: defaultdict[int, set[str]] = field(default_factory=lambda: defaultdict(set))
    attributes: set[str] = field(default_factory=set)  # Of objects, set from outside the object.
    # Class and attribute to the methods that set it.
    setters: defaultdict[tuple[str, str], set[str]] = field(default_factory=lambda: defaultdict(set))
    assigned: set[str] = field(default_factory=set)  # Variables with a call of `.assign`.
    called: set[str] = field(default_factory=set)  # Functions that are called directly outside any function;
    called_inside: set[str] = field(default_factory=set)  # or in one.
    has_metrics: bool = False  # A model is compiled with metrics.


class _Place(NamedTuple):
    owner: str = ""
    function: str = ""
    in_loop: bool = False
    fits: bool = False  # In a loop that fits a model.
    sets_others: bool = True
    own: frozenset[str] = frozenset()  # Names of the function itself.

    @property
    def name(self) -> str:
        return f"{self.owner}.{self.function}" if self.owner else self.function


def facts_of(file: SourceFile) -> FileFacts:
    """The facts of a file, gathered once."""
    found = file.names.get("facts")
    if not isinstance(found, FileFacts):
        found = file.names["facts"] = FileFacts()
        for node, place in _nodes(file.tree, _Place()):
            if isinstance(node, ast.For) and not place.fits:
                for made in (one for one in walk(node.body) if isinstance(one, (ast.Lambda, ast.FunctionDef))):
                    found.bound_late[id(made)] |= _stored(node.target)
            elif isinstance(node, ast.Call):
                _call(node, found, place)
            elif isinstance(node, (ast.Assign, ast.AugAssign)):
                for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
                    for leaf in leaves(target):
                        _set(leaf, found, place)
    return found


def _stored(node: ast.AST) -> set[str]:
    return {one.id for one in walk(node) if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Store)}


def _nodes(node: ast.AST, place: _Place) -> Iterator[tuple[ast.AST, _Place]]:
    """All nodes, each with where it stands."""
    if isinstance(node, ast.ClassDef):
        is_callback = any("Callback" in dotted(base) for base in node.bases)
        place = place._replace(owner=node.name, sets_others=is_callback)
    elif isinstance(node, ast.FunctionDef):
        declared = [name for one in walk(node) if isinstance(one, (ast.Global, ast.Nonlocal)) for name in one.names]
        own = _stored(node).difference(declared).union(one.arg for one in parameters(node))
        place = place._replace(function=node.name, in_loop=False, fits=False, own=frozenset(own))
    elif isinstance(node, (ast.For, ast.While)):
        place = place._replace(in_loop=True, fits=place.fits or any(method_name(one) in _FITS for one in walk(node)))
    yield node, place
    for child in ast.iter_child_nodes(node):
        yield from _nodes(child, place)


def _set(target: ast.expr, facts: FileFacts, place: _Place, in_place: bool = False) -> None:
    """A name or attribute is set; or an entry of it, or it is changed by a method: `in_place`."""
    while isinstance(target, ast.Subscript):
        target, in_place = target.value, True
    is_repeated = bool(place.function) or place.in_loop
    if isinstance(target, ast.Name) and is_repeated and target.id not in place.own:
        facts.changed[target.id].add(place.name)
        facts.changed_between_fits |= {target.id} if place.fits else set()
    elif isinstance(target, ast.Attribute) and dotted(target.value) == "self":
        facts.setters[place.owner, target.attr].add(place.function)
    elif isinstance(target, ast.Attribute) and is_repeated and place.sets_others and not in_place:
        facts.attributes.add(target.attr)


def _call(node: ast.Call, facts: FileFacts, place: _Place) -> None:
    name = dotted(node.func)
    short = name.rpartition(".")[2] or method_name(node)
    keywords = {one.arg: one.value for one in node.keywords}
    positional = [one for one in node.args if not isinstance(one, ast.Starred)]
    if short == "compile":
        for loss in (keywords["loss"],) if "loss" in keywords else positional[1:2]:
            _compiled(loss, "loss", facts)
        for metrics in (keywords[key] for key in ("metrics", "weighted_metrics") if key in keywords):
            _compiled(metrics, "metric", facts)
            facts.has_metrics = facts.has_metrics or bool(getattr(metrics, "elts", True))
    elif short in _WRAPPERS:
        for value in (*positional[:1], *(keywords[key] for key in ("fn", "func") if key in keywords)):
            _compiled(value, _WRAPPERS[short], facts)
    elif short.startswith("assign") and isinstance(node.func, ast.Attribute):
        held = node.func.value
        facts.assigned.add(last_name(held.value if isinstance(held, ast.Subscript) else held))
    elif short in _CHANGES and isinstance(node.func, ast.Attribute):
        _set(node.func.value, facts, place, in_place=True)
    elif short == "set_value" and positional:
        facts.assigned.add(last_name(positional[0]))
    elif short == "setattr" and len(positional) == 3 and (attribute := text_of(positional[1])) is not None:
        facts.attributes.add(attribute)
    if "." not in name:
        (facts.called_inside if place.function else facts.called).add(name)


def _compiled(node: ast.AST, kind: str, facts: FileFacts) -> None:
    if isinstance(node, ast.Lambda):
        facts.lambdas[id(node)] = kind
    elif isinstance(node, (ast.Name, ast.Attribute)):
        facts.compiled[last_name(node)] = kind
    elif isinstance(node, ast.Call):
        inside = [one for one in given_values(node) if isinstance(one, (ast.Lambda, ast.Name))]
        for one in (node.func, *inside):
            _compiled(one, kind, facts)
    elif isinstance(node, (ast.List, ast.Tuple, ast.Dict)):
        for one in node.values if isinstance(node, ast.Dict) else node.elts:
            _compiled(one, kind, facts)
