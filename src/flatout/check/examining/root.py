"""A function that Keras calls in a step or between steps, and what the rules may ask about it."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass

from flatout.check.values.abstract_values import AbstractValue, Class, External, Function, Instance
from flatout.pysource.file_facts import FileFacts, facts_of
from flatout.pysource.trees import defaults, dotted, names_in, walk

from .naming import named_as_loss

_GUARD = re.compile(r"eps|1e-|maximum|clip|clamp|where|eye|relu|max\(", re.IGNORECASE)

_FAMILIES = (
    ("loss", ("Loss", "LossFunctionWrapper"), "keras.losses."),
    ("metric", ("Metric",), "keras.metrics."),
    ("model", ("Model", "Sequential", "Functional", "LightningModule"), "keras.models."),
    ("callback", ("Callback",), "keras.callbacks."),
)


@dataclass(eq=False)
class Root:
    """A function that Keras calls in a step, or between steps."""

    kind: str  # "loss", "metric", "step", "callback", or "loop" for a training loop of the user's.
    name: str  # As the user would say it.
    function: Function
    arguments: tuple[AbstractValue, ...]
    must_learn: bool = False  # A loss for sure, so that it has to have a gradient.
    every_batch: bool = True  # A callback's method that runs after every batch.
    holds_no_weights: bool = True  # Variables that it reads belong to nobody that Keras tracks.
    true_name: str = ""
    pred_name: str = ""

    @property
    def facts(self) -> FileFacts:
        """What its file says beside its functions."""
        return facts_of(self.function.file)

    @property
    def gets_equal_ranks(self) -> bool:
        """Whether Keras gives it y_true of the rank of y_pred: to loss functions, not to objects and steps."""
        return self.kind == "loss" and self.function.owner is None and self.function.file.imports("keras", "tensorflow")

    def is_outside(self, name: str) -> bool:
        """Whether a name is not the function's own."""
        own = [target for one in self._assignments() for target in one.targets]
        return name not in names_in(own) and not self.is_parameter(name)

    def _assignments(self) -> Iterator[ast.Assign]:
        return (one for one in walk(self.function.node) if isinstance(one, ast.Assign))

    def is_parameter(self, name: str) -> bool:
        return any(parameter.arg == name for parameter in self.function.node.args.args)

    def is_setting(self, node: ast.expr) -> bool:
        """Whether an expression is a number that was chosen: `self.delta`, `DELTA`, `delta = 1 / 9`, a default."""
        if isinstance(node, ast.Attribute):
            return dotted(node.value) == "self"
        if not isinstance(node, ast.Name):
            return False
        fixed = [target for one in self._assignments() if not names_in(one.value) for target in one.targets]
        return node.id.isupper() or node.id in {*map(dotted, fixed), *defaults(self.function.node)}

    def changes_elsewhere(self, name: str) -> bool:
        """Whether another function changes a global of this name."""
        owner = f"{self.function.owner.of.node.name}." if isinstance(self.function.owner, Instance) else ""
        return bool(self.facts.changed.get(name, set()) - {owner + self.function.name})

    def is_changed_by_a_method(self, name: str, owner: Instance | Class) -> bool:
        """Whether a method of an object that is no layer, model or metric sets this attribute after it was made."""
        of = owner.of if isinstance(owner, Instance) else owner
        setters = self.facts.setters.get((of.node.name, name), set())
        return self.is_untracked(of) and bool(setters - {self.function.name, "__init__", "build", "compile", "setup"})

    def is_untracked(self, of: Class) -> bool:
        """Whether objects of a class are losses, or of no library, so that nobody tracks their variables."""
        return family_of(of) == "loss" or not any(isinstance(base, (Class, External)) for base in of.bases)

    def symbolic_inputs(self) -> Iterator[ast.Attribute]:
        """`model.input` and `model.inputs` inside the function, where `model` is not its own."""
        for one in walk(self.function.node) if self.kind in ("loss", "metric") else ():
            if isinstance(one, ast.Attribute) and one.attr in ("input", "inputs") and isinstance(one.value, ast.Name):
                name = one.value.id
                if re.search(r"model|net|encoder", name, re.IGNORECASE) and self.is_outside(name):
                    yield one

    def target_of(self, node: ast.AST) -> str:
        """The name that the value of an expression is given, if it is given one."""
        found = (one for one in self._assignments() if any(inner is node for inner in walk(one.value)))
        return next((dotted(one.targets[0]) for one in found), "")

    def is_guarded(self, node: ast.Call) -> bool:
        """Whether the names in a call's argument were computed with a guard: a small constant, a maximum, a mask."""
        names = names_in(node)
        made = [one.value for one in self._assignments() if names & set(map(dotted, one.targets))]
        return any(_GUARD.search(self.function.file.code(value)) for value in made)


def family_of(of: Class) -> str:
    """What a class is, by its bases: "loss", "metric", "model" or "callback"."""
    for base in of.bases:
        if isinstance(base, Class):
            if found := family_of(base):
                return found
            continue
        name = base.name if isinstance(base, External) else ""
        last = name.rsplit(".", 1)[-1]
        for kind, classes, module in _FAMILIES:
            if last in classes or name.startswith(module):
                return kind
        is_titled = re.search(r"loss|criterion", of.node.name, re.IGNORECASE)
        if last == "Module" and (is_titled or _takes_targets(of.methods.get("forward"))):
            return "loss"
    if _takes_targets(of.methods.get("__call__")) and not any(isinstance(base, (Class, External)) for base in of.bases):
        return "loss"
    return ""


def _takes_targets(method: object) -> bool:
    """Whether a method's parameters are called like targets and outputs."""
    if not isinstance(method, Function):
        return False
    names = [parameter.arg for parameter in method.node.args.args[1:3]]
    return len(names) == 2 and named_as_loss(names)
