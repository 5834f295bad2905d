"""Which functions are losses, metrics, steps or callbacks, and what their parameters are."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

import libcst as cst

from .reading.file_facts import Facts, facts_of
from .reading.source import SourceFile, children_of, dotted, walk
from .reading.values import UNKNOWN, Class, Data, External, Function, Instance, Static, Tuple, Value
from .reading.walk import Walk
from .rule import Backend

_TRUE = frozenset(
    [
        "y_true",
        "ytrue",
        "true",
        "trues",
        "y_t",
        "yt",
        "target",
        "targets",
        "tgt",
        "label",
        "labels",
        "truth",
        "gt",
        "ground_truth",
        "groundtruth",
        "y",
        "actual",
        "actuals",
        "expected",
        "true_y",
        "y_actual",
        "y_target",
        "real",
        "reference",
        "observed",
        "y_truth",
        "t",
        "y_trues",
        "truths",
        "y_real",
    ]
)
_PRED = frozenset(
    [
        "y_pred",
        "ypred",
        "pred",
        "preds",
        "prediction",
        "predictions",
        "output",
        "outputs",
        "out",
        "logits",
        "logit",
        "y_hat",
        "yhat",
        "p",
        "probs",
        "prob",
        "scores",
        "y_p",
        "yp",
        "predicted",
        "pred_y",
        "y_prediction",
        "estimate",
        "estimates",
        "forecast",
        "y_preds",
        "y_logits",
        "guess",
        "y_score",
        "y_prob",
        "y_out",
        "model_output",
        "embeddings",
        "y_out",
    ]
)
_LOSS = re.compile(
    r"(loss|criterion|objective|penalty|nll|crossentropy|cross_entropy|divergence)(_?fn|_?func|_?function|_?\d+)?$",
    re.IGNORECASE,
)
_LOSS_START = re.compile(r"^(loss|custom_loss|my_loss)", re.IGNORECASE)
_METRIC = re.compile(
    r"(metric|accuracy|precision|recall|f1|auc|iou|dice|coef|coefficient|score|error|distance|mae|mse|rmse|mape|r2|overlap|rate)",
    re.IGNORECASE,
)
_NO_ROOT = re.compile(
    r"^(plot|show|print|report|display|save|load|read|write|get|make|build|create|draw|summari[sz]e|visuali[sz]e|test|main"
    r"|train|fit|evaluate|compile|export|run)(_|$)",
    re.IGNORECASE,
)
_NO_TENSORS = frozenset(
    [
        "model",
        "config",
        "cfg",
        "name",
        "path",
        "args",
        "kwargs",
        "history",
        "epoch",
        "epochs",
        "logs",
        "optimizer",
        "df",
        "frame",
        "data",
        "dataset",
        "loader",
        "params",
        "options",
        "self",
        "cls",
        "text",
        "message",
        "filename",
        "title",
        "ax",
        "fig",
        "loss",
        "losses",
        "weights",
        "alpha",
        "beta",
        "gamma",
        "num_classes",
        "reduction",
    ]
)
_ANNOTATED = re.compile(r"\b(str|int|float|bool|dict|list|Path|Callable|DataFrame|Sequence|Iterable)\b")
_EXTRAS = frozenset(
    [
        "sample_weight",
        "weight_mask",
        "mask",
        "masks",
        "weights",
        "x",
        "inputs",
        "length",
        "lengths",
        "count",
        "counts",
        "group",
        "groups",
    ]
)
_BATCH_HOOKS = re.compile(r"^on_(train_|test_|predict_)?batch_(begin|end)$")
_EPOCH_HOOKS = re.compile(r"^on_(epoch|train|test|predict)_(begin|end)$")


@dataclass(eq=False)
class Root:
    """A function that Keras calls in a step, or between steps.

    Attributes:
        kind: "loss", "metric", "step" or "callback".
        name: As the user would say it.
        function: To be walked through.
        arguments: What its parameters are.
        must_learn: A loss for sure, so that it has to have a gradient.
        every_batch: A callback's method that runs after every batch.
        holds_no_weights: Variables that it reads belong to nobody that Keras tracks.
    """

    kind: str
    name: str
    function: Function
    arguments: tuple[Value, ...]
    backend: Backend
    facts: Facts
    must_learn: bool = False
    every_batch: bool = True
    holds_no_weights: bool = True
    true_name: str = ""
    pred_name: str = ""

    @property
    def has_metrics(self) -> bool:
        """Whether a model of the file is compiled with metrics."""
        return self.facts.has_metrics

    def _own_names(self) -> set[str]:
        owner = self.function.owner
        name = self.function.name
        return {name, f"{owner.of.node.name.value}.{name}"} if isinstance(owner, Instance) else {name}

    def is_outside(self, name: str) -> bool:
        """Whether a name is not the function's own."""
        node = self.function.node
        own = {
            target.value
            for one in walk(node)
            if isinstance(one, cst.AssignTarget)
            for target in walk(one.target)
            if isinstance(target, cst.Name)
        }
        return name not in own and not self.is_parameter(name)

    def is_parameter(self, name: str) -> bool:
        """Whether a name is a parameter."""
        return any(parameter.name.value == name for parameter in self.function.node.params.params)

    def assigned(self, name: str) -> bool:
        """Whether `.assign` is called on a variable of this name somewhere."""
        return name in self.facts.assigned

    def changes_elsewhere(self, name: str) -> bool:
        """Whether another function changes a global of this name."""
        return bool(self.facts.changed.get(name, set()) - self._own_names())

    def attribute_changes_elsewhere(self, name: str) -> bool:
        """Whether an attribute of this name is set from outside its object."""
        return name in self.facts.attributes

    def is_loss_class(self, of: Class) -> bool:
        """Whether objects of a class are losses, whose variables nobody tracks."""
        return _family(of) == "loss"

    def is_own(self, owner: Instance) -> bool:
        """Whether an object is the one whose method is examined."""
        return self.function.owner is owner

    def symbolic_inputs(self, node: cst.CSTNode) -> Iterator[cst.CSTNode]:
        """`model.input` and `model.inputs` inside the function, where `model` is not its own."""
        if self.kind not in ("loss", "metric"):
            return
        for one in walk(node):
            if (
                isinstance(one, cst.Attribute)
                and one.attr.value in ("input", "inputs")
                and isinstance(one.value, cst.Name)
            ):
                name = one.value.value
                if re.search(r"model|net|encoder", name, re.IGNORECASE) and self.is_outside(name):
                    yield one

    def target_of(self, node: cst.CSTNode) -> str:
        """The name that the value of an expression is given, if it is given one."""
        for one in walk(self.function.node):
            if isinstance(one, cst.Assign) and any(inner is node for inner in walk(one.value)):
                return dotted(one.targets[0].target)
        return ""

    def is_guarded(self, node: cst.Call) -> bool:
        """Whether the names in a call's argument were computed with a guard: a small constant, a maximum, a mask."""
        names = {one.value for one in walk(node) if isinstance(one, cst.Name)}
        for one in walk(self.function.node):
            if isinstance(one, cst.Assign) and {dotted(target.target) for target in one.targets} & names:
                text = cst.Module([]).code_for_node(one.value)
                if re.search(r"eps|1e-|maximum|clip|clamp|where|eye|relu|max\(", text, re.IGNORECASE):
                    return True
        return False


def roots_of(file: SourceFile, walk_: Walk, backend: Backend) -> list[Root]:
    """Everything in a file that Keras would call."""
    if not _may_have_roots(file):
        return []
    facts = facts_of(file)
    names = walk_.load(file)
    found: list[Root] = []
    seen: set[int] = set()

    def add(root: Root | None) -> None:
        if root is not None and id(root.function.node) not in seen:
            seen.add(id(root.function.node))
            found.append(root)

    for name, value in list(names.values.items()):
        if isinstance(value, Function) and value.file is file:
            add(_of_function(value, name, facts, backend))
        elif isinstance(value, Class) and value.file is file:
            for root in _of_class(value, walk_, facts, backend):
                add(root)
    for function in [*walk_.made, *_made_by_factories(names.values, file, walk_)]:
        if function.file is file and id(function.node) not in seen:
            add(_of_function(function, function.name, facts, backend))
    for of in walk_.classes:
        if of.file is file:
            for root in _of_class(of, walk_, facts, backend):
                add(root)
    return found


def _made_by_factories(values: dict[str, Value], file: SourceFile, walk_: Walk) -> list[Function]:
    """Functions inside functions, with the names around them."""
    walk_.made.clear()
    for value in list(values.values()):
        if isinstance(value, Function) and value.file is file and _makes_functions(value.node):
            reporting, walk_.reporting = walk_.reporting, False
            try:
                walk_.run(value, [], {})
            finally:
                walk_.reporting = reporting
    return list(walk_.made)


def _makes_functions(node: cst.FunctionDef | cst.Lambda) -> bool:
    made = (cst.FunctionDef, cst.Lambda, cst.ClassDef)
    return any(isinstance(one, made) for one in walk(node.body))


def _may_have_roots(file: SourceFile) -> bool:
    """Most files of a project have no loss; they need not be walked through."""
    return file.uses_a_framework or bool(re.search(r"def (loss|metric)\(|y_pred", file.text))


def _of_function(function: Function, name: str, facts: Facts, backend: Backend) -> Root | None:
    kind = facts.lambdas.get(id(function.node)) or facts.compiled.get(name)
    parameters = [*function.node.params.posonly_params, *function.node.params.params]
    names = [parameter.name.value for parameter in parameters]
    required = [parameter for parameter in parameters if parameter.default is None]
    if _returns_a_function(function.node):
        return None
    compiled = kind is not None
    if kind is None:
        if len(names) < 2:
            return None
        by_names = _named_as_loss(names)
        by_decorator = any(
            decorator.endswith(("flatout.loss", "flatout.vectorize")) for decorator in function.decorators
        )
        by_title = bool(_LOSS.search(name) or _LOSS_START.match(name))
        if _NO_ROOT.match(name) and not (by_names and by_title):
            return None
        if by_title and len(required) >= 2 and not set(names[:2]) & _NO_TENSORS and not _annotated(parameters[:2]):
            kind = "loss"
        elif by_names:
            kind = "metric" if _METRIC.search(name) else "loss" if by_title else "function"
            if kind == "function" and min(map(len, names[:2])) == 1:
                # `def f(t, p)` may be anything.
                kind = None
        elif by_decorator:
            kind = "loss"
        # Without Keras or a backend in sight, a function of NumPy arrays is just that, unless its name says otherwise.
        if kind is None or not (function.file.uses_a_framework or by_decorator or name in ("loss", "metric")):
            return None
        if name in facts.called and kind != "loss":
            return None
    if len(names) < 2:
        return None
    true, pred = (1, 0) if names[0] in _PRED and names[1] in _TRUE else (0, 1)
    sure = names[pred] in _PRED or names[true] in _TRUE
    arguments = _arguments(parameters, true, pred, sure)
    decided = "loss" if kind == "function" else kind
    must_learn = (compiled and kind == "loss") or (bool(_LOSS.search(name) or name == "loss") and kind == "loss")
    return Root(
        decided,
        name,
        function,
        arguments,
        backend,
        facts,
        must_learn,
        true_name=names[true],
        pred_name=names[pred],
    )


def _named_as_loss(names: list[str]) -> bool:
    first, second = names[:2]
    return (first in _TRUE and second in _PRED) or (first in _PRED and second in _TRUE)


def _annotated(parameters: list[cst.Param]) -> bool:
    notes = [parameter.annotation.annotation for parameter in parameters if parameter.annotation is not None]
    return any(_ANNOTATED.search(cst.Module([]).code_for_node(note)) for note in notes)


def _returns_a_function(node: cst.FunctionDef | cst.Lambda) -> bool:
    if isinstance(node, cst.Lambda):
        return isinstance(node.body, cst.Lambda)
    inner = {one.name.value for one in node.body.body if isinstance(one, cst.FunctionDef)}
    returns = [one.value for one in _own_nodes(node.body) if isinstance(one, cst.Return)]
    return any(
        isinstance(value, cst.Lambda) or (isinstance(value, cst.Name) and value.value in inner) for value in returns
    )


def _own_nodes(node: cst.CSTNode) -> Iterator[cst.CSTNode]:
    yield node
    if not isinstance(node, (cst.FunctionDef, cst.Lambda, cst.ClassDef)):
        for child in children_of(node):
            yield from _own_nodes(child)


def _arguments(parameters: list[cst.Param], true: int, pred: int, sure: bool) -> tuple[Value, ...]:
    values: list[Value] = []
    for at, parameter in enumerate(parameters):
        name = parameter.name.value
        if at == true:
            values.append(Data(frozenset({"true"}), differentiable=not sure, rank=0))
        elif at == pred:
            values.append(Data(frozenset({"pred"}), differentiable=True, rank=0))
        elif parameter.default is None and not _annotated([parameter]) and name not in _NO_TENSORS:
            values.append(Data(frozenset({"x"}), mapping=name in ("x", "inputs")))
        elif name in _EXTRAS and parameter.default is not None:
            values.append(Data(frozenset({"x"})))
        else:
            break
    return tuple(values)


_TRUTH = Data(frozenset({"true"}), rank=0)
_GUESS = Data(frozenset({"pred"}), differentiable=True, rank=0)
_INPUTS = Data(frozenset({"x"}), mapping=True)
_WEIGHT = Data(frozenset({"weight"}))


def _of_class(of: Class, walk_: Walk, facts: Facts, backend: Backend) -> Iterator[Root]:
    family = _family(of)
    if not family:
        return
    instance = walk_.create(of, [], {})
    title = of.node.name.value
    for name, method in of.methods.items():
        if not isinstance(method, Function):
            continue
        found = _of_method(family, name, method)
        if found is not None:
            kind, arguments = found
            bound = method.bound(instance)
            names = [parameter.name.value for parameter in method.node.params.params[1:3]]
            true, pred = (names[1], names[0]) if len(names) > 1 and names[0] in _PRED else (*names, "", "")[:2]
            yield Root(
                kind,
                f"{title}.{name}",
                bound,
                arguments,
                backend,
                facts,
                must_learn=family == "loss" and name in ("call", "forward", "__call__"),
                every_batch=bool(_BATCH_HOOKS.match(name)),
                holds_no_weights=family == "loss",
                true_name=true if kind == "loss" else "",
                pred_name=pred if kind == "loss" else "",
            )


def _of_method(family: str, name: str, method: Function) -> tuple[str, tuple[Value, ...]] | None:
    names = [parameter.name.value for parameter in method.node.params.params[1:]]
    if family == "loss" and name in ("call", "forward", "__call__") and len(names) >= 2:
        order = (_GUESS, _TRUTH) if names[0] in _PRED and names[1] not in _PRED else (_TRUTH, _GUESS)
        return "loss", order
    if family == "metric" and name in ("update_state", "result"):
        guess = Data(frozenset({"pred"}), rank=0)
        return "metric", (_TRUTH, guess, _WEIGHT) if name == "update_state" else ()
    if family == "model":
        if name in ("train_step", "test_step", "predict_step") and names:
            data = Tuple((_INPUTS, _TRUTH))
            return "step", (*([UNKNOWN] * (len(names) - 1)), data)
        if name in ("compute_loss", "compute_loss_and_updates", "compute_metrics"):
            known = {"x": _INPUTS, "y": _TRUTH, "y_pred": _GUESS, "sample_weight": _WEIGHT}
            return ("loss" if name == "compute_loss" else "step"), tuple(known.get(one, UNKNOWN) for one in names)
    if family == "callback" and (_BATCH_HOOKS.match(name) or _EPOCH_HOOKS.match(name)):
        return "callback", (Static("number"), Static("dict"))
    return None


def _family(of: Class) -> str:
    """What a class is, by its bases: "loss", "metric", "model" or "callback"."""
    for base in of.bases:
        if isinstance(base, Class):
            if found := _family(base):
                return found
            continue
        name = base.name if isinstance(base, External) else ""
        last = name.rsplit(".", 1)[-1]
        if last == "Loss" or name.startswith("keras.losses.") or last == "LossFunctionWrapper":
            return "loss"
        if last == "Metric" or name.startswith("keras.metrics."):
            return "metric"
        if last in ("Model", "Sequential", "Functional", "LightningModule") or name.startswith("keras.models."):
            return "model"
        if last == "Callback" or name.startswith("keras.callbacks."):
            return "callback"
        if last == "Module" and re.search(r"loss|criterion", of.node.name.value, re.IGNORECASE):
            return "loss"
    call = of.methods.get("__call__")
    if isinstance(call, Function) and not any(isinstance(base, (Class, External)) for base in of.bases):
        names = [parameter.name.value for parameter in call.node.params.params[1:3]]
        if len(names) == 2 and _named_as_loss(names):
            return "loss"
    return ""
