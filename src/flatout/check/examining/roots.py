"""Which functions are losses, metrics, steps or callbacks, and what their parameters are."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from flatout.check.reading.walk import Walk
from flatout.check.rules.rule import Backend
from flatout.check.values.abstract_values import UNKNOWN, AbstractValue, Class, Data, Function, Instance, Static, Tuple
from flatout.pysource.file_facts import FileFacts, facts_of
from flatout.pysource.source_file import Project, SourceFile
from flatout.pysource.trees import FunctionNode, defaults, dotted, parameters, walk

from .naming import (
    ANNOTATED,
    BATCH_HOOKS,
    EPOCH_HOOKS,
    EXTRAS,
    LOSS_END,
    LOSS_START,
    METRIC,
    NO_ROOT,
    NO_TENSORS,
    PRED_NAMES,
    TENSOR_LIBRARIES,
    TRUE_NAMES,
    named_as_loss,
)
from .root import Root, family_of

_OUR_DECORATORS = (["flatout", "loss"], ["flatout", "vectorize"])


def roots_of(project: Project, file: SourceFile, backend: Backend) -> list[Root]:
    """Everything in a file that Keras would call."""
    if not _may_have_roots(file):
        return []
    facts = facts_of(file)
    walk_ = Walk(project, file, reporting=False)
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


def _made_by_factories(values: dict[str, AbstractValue], file: SourceFile, walk_: Walk) -> list[Function]:
    """Functions inside functions, with the names around them."""
    walk_.made.clear()
    for value in list(values.values()):
        if isinstance(value, Function) and value.file is file and _makes_functions(value.node):
            with walk_.silence():
                walk_.run(value, [], {})
    return list(walk_.made)


def _makes_functions(node: FunctionNode) -> bool:
    made = (ast.FunctionDef, ast.Lambda, ast.ClassDef)
    return any(isinstance(one, made) for one in walk(node.body))


def _may_have_roots(file: SourceFile) -> bool:
    """Most files of a project have no loss; they need not be walked through."""
    return file.uses_a_framework or bool(re.search(r"def (loss|metric)\(|y_pred", file.text))


def _of_function(
    function: Function, name: str, facts: FileFacts, backend: Backend, owner: Instance | None = None
) -> Root | None:
    kind = facts.lambdas.get(id(function.node)) or facts.compiled.get(name)
    given = _parameters(function, has_owner=owner is not None)
    names = [parameter.arg for parameter in given]
    required = set(names) - set(defaults(function.node))
    if _returns_a_function(function.node):
        return None
    compiled = kind is not None
    if kind is None:
        if len(names) < 2:
            return None
        by_names = named_as_loss(names)
        by_decorator = any(one.split(".")[-2:] in _OUR_DECORATORS for one in function.decorators)
        by_title = bool(LOSS_END.search(name) or LOSS_START.match(name))
        if NO_ROOT.match(name) and not (by_names and by_title):
            return None
        if by_title and len(required) >= 2 and not set(names[:2]) & NO_TENSORS and not _annotated(given[:2]):
            kind = "loss"
        elif by_names:
            kind = "metric" if METRIC.search(name) else "loss" if by_title else "function"
            if kind == "function" and (min(map(len, names[:2])) == 1 or not _is_of_tensors(function, names)):
                # `def f(t, p)` may be anything, and `scores, labels` may be arrays of NumPy.
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
    true, pred = (1, 0) if names[0] in PRED_NAMES and names[1] in TRUE_NAMES else (0, 1)
    sure = names[pred] in PRED_NAMES or names[true] in TRUE_NAMES
    arguments = _arguments(given, defaults(function.node), true, pred, sure)
    decided = "loss" if kind == "function" else kind
    must_learn = (compiled and kind == "loss") or (bool(LOSS_END.search(name) or name == "loss") and kind == "loss")
    return Root(
        decided,
        name if owner is None else f"{owner.of.node.name}.{name}",
        function if owner is None else function.bound(owner),
        arguments,
        backend,
        facts,
        must_learn,
        true_name=names[true],
        pred_name=names[pred],
    )


def _is_of_tensors(function: Function, names: list[str]) -> bool:
    """Whether parameters are called as Keras calls them, or the function calls a library of tensors."""
    if any(name.startswith("y_") for name in names[:2]):
        return True
    roots = {dotted(one).partition(".")[0] for one in walk(function.node.body) if isinstance(one, ast.Attribute)}
    return bool(roots & TENSOR_LIBRARIES)


def _annotated(given: list[ast.arg]) -> bool:
    return any(one.annotation is not None and ANNOTATED.search(ast.unparse(one.annotation)) for one in given)


def _returns_a_function(node: FunctionNode) -> bool:
    if isinstance(node, ast.Lambda):
        return isinstance(node.body, ast.Lambda)
    inner = {one.name for one in node.body if isinstance(one, ast.FunctionDef)}
    returns = [one.value for part in node.body for one in _own_nodes(part) if isinstance(one, ast.Return)]
    return any(isinstance(one, ast.Lambda) or (isinstance(one, ast.Name) and one.id in inner) for one in returns)


def _own_nodes(node: ast.AST) -> Iterator[ast.AST]:
    yield node
    if not isinstance(node, (ast.FunctionDef, ast.Lambda, ast.ClassDef)):
        for child in ast.iter_child_nodes(node):
            yield from _own_nodes(child)


def _arguments(
    given: list[ast.arg], optional: dict[str, ast.expr], true: int, pred: int, sure: bool
) -> tuple[AbstractValue, ...]:
    values: list[AbstractValue] = []
    for at, parameter in enumerate(given):
        name = parameter.arg
        if at == true:
            values.append(Data(frozenset({"true"}), differentiable=not sure, rank=0))
        elif at == pred:
            values.append(_GUESS)
        elif name not in optional and not _annotated([parameter]) and name not in NO_TENSORS:
            values.append(Data(frozenset({"x"}), mapping=name in ("x", "inputs")))
        elif name in EXTRAS and name in optional:
            values.append(Data(frozenset({"x"})))
        else:
            break
    return tuple(values)


_TRUTH = Data(frozenset({"true"}), rank=0)
_GUESS = Data(frozenset({"pred"}), differentiable=True, rank=0)
_INPUTS = Data(frozenset({"x"}), mapping=True)
_WEIGHT = Data(frozenset({"weight"}))


def _of_class(of: Class, walk_: Walk, facts: FileFacts, backend: Backend) -> Iterator[Root]:
    family = family_of(of)
    if not family and not _plain_roots(of, facts):
        return
    instance = walk_.create(of, [], {})
    for name, method in _plain_roots(of, facts):
        root = _of_function(method, name, facts, backend, instance)
        if root is not None:
            yield root
    if not family:
        return
    title = of.node.name
    for name, method in of.methods.items():
        if not isinstance(method, Function):
            continue
        found = _of_method(family, name, method)
        if found is not None:
            kind, arguments = found
            bound = method.bound(instance)
            names = [parameter.arg for parameter in method.node.args.args[1:3]]
            true, pred = (names[1], names[0]) if len(names) > 1 and names[0] in PRED_NAMES else (*names, "", "")[:2]
            yield Root(
                kind,
                f"{title}.{name}",
                bound,
                arguments,
                backend,
                facts,
                must_learn=family == "loss" and name in ("call", "forward", "__call__"),
                every_batch=bool(BATCH_HOOKS.match(name)),
                holds_no_weights=family == "loss",
                true_name=true if kind == "loss" else "",
                pred_name=pred if kind == "loss" else "",
            )


def _plain_roots(of: Class, facts: FileFacts) -> list[tuple[str, Function]]:
    """The methods that are losses by their own right: compiled into a model, or called and spelled like one."""
    found = []
    for name, method in of.methods.items():
        if not isinstance(method, Function) or name.startswith("__"):
            continue
        names = [parameter.arg for parameter in _parameters(method, has_owner=True)]
        titled = bool(LOSS_END.search(name) or METRIC.search(name))
        spelled = len(names) > 1 and named_as_loss(names) and min(map(len, names[:2])) > 1
        if name in facts.compiled or (titled and spelled):
            found.append((name, method))
    return found


def _parameters(function: Function, has_owner: bool) -> list[ast.arg]:
    everything = parameters(function.node)
    return everything[1:] if has_owner and "staticmethod" not in function.decorators else everything


def _of_method(family: str, name: str, method: Function) -> tuple[str, tuple[AbstractValue, ...]] | None:
    names = [parameter.arg for parameter in method.node.args.args[1:]]
    if family == "loss" and name in ("call", "forward", "__call__") and len(names) >= 2:
        order = (_GUESS, _TRUTH) if names[0] in PRED_NAMES and names[1] not in PRED_NAMES else (_TRUTH, _GUESS)
        return "loss", order
    if family == "metric" and name in ("update_state", "result"):
        guess = Data(frozenset({"pred"}), rank=0)
        return "metric", (_TRUTH, guess, _WEIGHT) if name == "update_state" else ()
    if family == "model":
        takes_any = method.node.args.vararg is not None
        if name in ("train_step", "test_step", "predict_step") and (names or takes_any):
            data = Tuple((_INPUTS, _TRUTH))
            return "step", (*([UNKNOWN] * (len(names) - (not takes_any))), data)
        if name in ("compute_loss", "compute_loss_and_updates", "compute_metrics"):
            known = {"x": _INPUTS, "y": _TRUTH, "y_pred": _GUESS, "sample_weight": _WEIGHT}
            return ("loss" if name == "compute_loss" else "step"), tuple(known.get(one, UNKNOWN) for one in names)
    if family == "callback" and (BATCH_HOOKS.match(name) or EPOCH_HOOKS.match(name)):
        return "callback", (Static("number"), Static("dict"))
    return None
