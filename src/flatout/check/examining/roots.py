"""Which functions are losses, metrics, steps or callbacks, and what their parameters are."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator

from flatout.check.reading.walk import Walk
from flatout.check.values import abstract_values as av
from flatout.check.values.abstract_values import UNKNOWN, AbstractValue, Class, Data, Function, Instance, Static, Tuple
from flatout.check.values.names import Names
from flatout.pysource.file_facts import facts_of
from flatout.pysource.source_file import FRAMEWORKS, Project, SourceFile
from flatout.pysource.trees import FunctionNode, defaults, dotted, last_name, leaves, method_name, parameters, walk

from . import naming
from .root import Root, family_of

_OUR_DECORATORS = (["flatout", "loss"], ["flatout", "vectorize"])
_COMPILING = ("function", "jit", "compile")
_CALLS = ("call", "forward", "__call__")
_LOOPS = (ast.For, ast.While)
_STEPS = frozenset(["apply_gradients", "backward", "train_on_batch", "value_and_grad", "stateless_apply"])
_TRUTH = Data(frozenset({"true"}), rank=0)
_GUESS = Data(frozenset({"pred"}), differentiable=True, rank=0)
_INPUTS = Data(frozenset({"x"}), mapping=True)
_WEIGHT = Data(frozenset({"weight"}))


def roots_of(project: Project, file: SourceFile) -> list[Root]:
    """Everything in a file that Keras would call."""
    # Most files of a project have no loss; they need not be walked through.
    if not file.imports(*FRAMEWORKS) and not re.search(r"def (loss|metric)\(|y_pred", file.text):
        return []
    walk_ = Walk(project, file, reporting=False)
    found: dict[ast.AST, Root] = {}
    for name, value in _candidates(walk_, file):
        of, *given = value.items if isinstance(value, av.Together) and value.how == "partial" else (value,)
        if not isinstance(of, (Class, Function)) or of.file is not file:
            continue
        roots: Iterable[Root | None]
        roots = _of_class(of, walk_) if isinstance(of, Class) else [_of_function(of, name, given=given)]
        for root in filter(None, roots):
            # A partial says how its function is called.
            found[root.function.node] = found.get(root.function.node, root) if of is value else root
    return [*found.values(), *_loops(file, walk_.load(file))]


def _candidates(walk_: Walk, file: SourceFile) -> Iterator[tuple[str, AbstractValue]]:
    """The names of a module; then the functions and classes inside functions, with the names around them."""
    named = [
        (name, one)
        for name, value in walk_.load(file).values.items()
        for one in (value.alternatives if isinstance(value, av.Defined) else (value,))
    ]
    yield from named
    classes = [value for _, value in named if isinstance(value, Class)]
    methods = [one.bound(Instance(of)) for of in classes for one in of.methods.values() if isinstance(one, Function)]
    functions = [*(value for _, value in named if isinstance(value, Function)), *methods]
    functions = [one for one in functions if one.file is file]
    entered: set[ast.AST] = set()
    # What a function makes may make others: decorators with arguments do.
    while functions := [one for one in functions if one.node not in entered and _makes_functions(one)]:
        for function in functions:
            entered.add(function.node)
            walk_.run(function, [], {})
        functions = walk_.made
    yield from [(one.name, one) for one in walk_.made]
    yield from [(one.node.name, one) for one in walk_.classes]


def _makes_functions(function: Function) -> bool:
    body = function.node.body
    return any(isinstance(one, (ast.FunctionDef, ast.Lambda, ast.ClassDef)) for one in walk(body))


def _of_function(function: Function, name: str, owner: Instance | None = None, given: av.Arguments = ()) -> Root | None:
    """A loss, metric or step; `given` is what a partial gives it first."""
    left = _parameters(function, has_owner=owner is not None)[len(given) :]
    names = [parameter.arg for parameter in left]
    if len(names) < 2 or _returns_a_function(function.node):
        return None
    if owner is None and (step := _of_step(function, name, left)) is not None:
        return step
    facts = facts_of(function.file)
    compiled = facts.lambdas.get(id(function.node)) or facts.compiled.get(name)
    kind = compiled or _kind_by_name(function, name, left)
    if not kind:
        return None
    true, pred = (1, 0) if names[0] in naming.PRED_NAMES and names[1] in naming.TRUE_NAMES else (0, 1)
    sure = names[pred] in naming.PRED_NAMES or names[true] in naming.TRUE_NAMES
    return Root(
        kind,
        name if owner is None else f"{owner.of.node.name}.{name}",
        function if owner is None else function.bound(owner),
        (*given, *_arguments(left, defaults(function.node), {true: _TRUTH.but(differentiable=not sure), pred: _GUESS})),
        must_learn=kind == "loss" and bool(compiled or naming.LOSS_END.search(name) or name == "loss"),
        true_name=names[true],
        pred_name=names[pred],
    )


def _of_step(function: Function, name: str, given: list[ast.arg]) -> Root | None:
    """A step, or a loss of the model and a batch, of a training loop that users write themselves."""
    is_compiled = any(one.split(".")[-1] in _COMPILING for one in function.decorators) and "train" in name
    titled = bool(naming.LOSS_END.search(name)) and not naming.NO_ROOT.match(name) and not _annotated(given[1:])
    if not is_compiled and not (titled and given[0].arg in naming.NETWORKS and len(given) > 2):
        return None
    arguments = tuple(_argument_named(one.arg) for one in given)
    return Root("step", name, function, arguments, holds_no_weights=False)


def _argument_named(name: str) -> AbstractValue:
    """What a parameter of a step is, by its name: a batch, its targets, or nothing that is known."""
    if name in naming.NO_TENSORS or name in naming.NETWORKS:
        return UNKNOWN
    if name in naming.COUNTERS:
        return Static("number")
    return Data(frozenset({"true" if name in naming.TRUE_NAMES else "x"}), mapping=name not in naming.TRUE_NAMES)


def _loops(file: SourceFile, names: Names) -> Iterator[Root]:
    """The innermost loops of a file that take a training step, themselves or by a function of the file."""
    functions = [one for one in walk(file.tree) if isinstance(one, ast.FunctionDef) and _takes(one.body, _STEPS)]
    steps = _STEPS | {one.name for one in functions if not any(isinstance(inner, _LOOPS) for inner in walk(one.body))}
    for node in walk(file.tree):
        if not isinstance(node, ast.For) or not _takes(node.body, steps):
            continue
        if any(_takes(inner.body, steps) for inner in walk(node.body) if isinstance(inner, _LOOPS)):
            continue
        batch = [leaf.id for leaf in leaves(node.target) if isinstance(leaf, ast.Name)]
        # Its body does after every batch what a callback would.
        given = ast.arguments([], list(map(ast.arg, batch)), kwonlyargs=[], kw_defaults=[], defaults=[])
        body = ast.FunctionDef("training loop", given, node.body, decorator_list=[])
        function = Function(ast.copy_location(body, node), file, names, name=body.name)
        yield Root("loop", "the training loop", function, tuple(map(_argument_named, batch)))


def _takes(body: list[ast.stmt], steps: frozenset[str]) -> bool:
    """Whether one of these is called."""
    return any(method_name(one) in steps or last_name(getattr(one, "func", None)) in steps for one in walk(body))


def _kind_by_name(function: Function, name: str, given: list[ast.arg]) -> str:
    """What a function is by its name, its parameters' and its decorators; empty if it is not for Keras."""
    names = [parameter.arg for parameter in given]
    by_names = naming.named_as_loss(names)
    by_title = bool(naming.LOSS_END.search(name) or naming.LOSS_START.match(name))
    by_decorator = any(one.split(".")[-2:] in _OUR_DECORATORS for one in function.decorators)
    if naming.NO_ROOT.match(name) and not (by_names and by_title):
        return ""
    # Without Keras or a backend in sight, a function of NumPy arrays is just that, unless its name says otherwise.
    if not (function.file.imports(*FRAMEWORKS) or by_decorator or name in ("loss", "metric")):
        return ""
    facts = facts_of(function.file)
    if not by_decorator and name in facts.called | facts.called_inside and _is_of_numpy(function):
        return ""
    required = set(names) - set(defaults(function.node))
    if by_title and len(required) >= 2 and not set(names[:2]) & naming.NO_TENSORS and not _annotated(given[:2]):
        return "loss"
    if not by_names:
        return "loss" if by_decorator else ""
    is_metric = naming.METRIC.search(name)
    if by_title and not is_metric:
        return "loss"
    # `def f(t, p)` may be anything, and `scores, labels` may be arrays of NumPy.
    is_clear = is_metric or (min(map(len, names[:2])) > 1 and _is_of_tensors(function, names))
    if name in facts.called or not is_clear:
        return ""
    return "metric" if is_metric else "loss"


def _is_of_tensors(function: Function, names: list[str]) -> bool:
    """Whether parameters are called as Keras calls them, or the function calls a library of tensors."""
    if any(name.startswith("y_") for name in names[:2]):
        return True
    return bool(_objects(function) & naming.TENSOR_LIBRARIES)


def _is_of_numpy(function: Function) -> bool:
    """Whether a function computes with NumPy and the like alone: what calls it has no tensors for it."""
    objects = _objects(function)
    return bool(objects & {"np", "numpy"}) and not objects & naming.TENSOR_LIBRARIES


def _objects(function: Function) -> set[str]:
    """The names of what a function reads attributes of."""
    return {dotted(one).partition(".")[0] for one in walk(function.node.body) if isinstance(one, ast.Attribute)}


def _annotated(given: list[ast.arg]) -> bool:
    return any(one.annotation is not None and naming.ANNOTATED.search(ast.unparse(one.annotation)) for one in given)


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


def _arguments(given: list[ast.arg], optional: dict[str, ast.expr], known: dict[int, Data]) -> Iterator[AbstractValue]:
    for at, parameter in enumerate(given):
        name = parameter.arg
        is_array = name not in naming.NO_TENSORS and not _annotated([parameter])
        if at in known:
            yield known[at]
        elif name in naming.EXTRAS if name in optional else is_array:
            yield Data(frozenset({"x"}), mapping=name in ("x", "inputs") and name not in optional)
        else:
            return


def _of_class(of: Class, walk_: Walk) -> Iterator[Root | None]:
    family = family_of(of)
    found = ((name, one.alternatives) for name, one in of.methods.items() if isinstance(one, Function))
    methods = [(name, one) for name, alternatives in found for one in alternatives]
    plain = [(name, method) for name, method in methods if _is_plain_root(name, method)]
    if not family and not plain:
        return
    instance = walk_.create(of, [], {})
    for name, method in plain:
        yield _of_function(method, name, instance)
    for name, method in methods:
        if (of_keras := _of_method(family, name, method)) is not None:
            kind, arguments, named = of_keras
            yield Root(
                kind,
                f"{of.node.name}.{name}",
                method.bound(instance),
                arguments,
                must_learn=family == "loss",
                every_batch=bool(naming.BATCH_HOOKS.match(name)),
                holds_no_weights=family == "loss",
                true_name=named[0],
                pred_name=named[1],
            )


def _is_plain_root(name: str, method: Function) -> bool:
    """Whether a method is a loss by its own right: compiled into a model, or called and spelled like one."""
    names = [parameter.arg for parameter in _parameters(method, has_owner=True)]
    titled = bool(naming.LOSS_END.search(name) or naming.METRIC.search(name))
    spelled = len(names) > 1 and naming.named_as_loss(names) and min(map(len, names[:2])) > 1
    return not name.startswith("__") and (name in facts_of(method.file).compiled or (titled and spelled))


def _parameters(function: Function, has_owner: bool) -> list[ast.arg]:
    everything = parameters(function.node)
    return everything[1:] if has_owner and "staticmethod" not in function.decorators else everything


_Method = tuple[str, tuple[AbstractValue, ...], tuple[str, str]]


def _of_method(family: str, name: str, method: Function) -> _Method | None:
    """The kind and the arguments of what Keras calls of a class, and the names of a loss's targets and outputs."""
    names = [parameter.arg for parameter in method.node.args.args[1:]]
    if family == "loss" and name in _CALLS and len(names) >= 2:
        if names[0] in naming.PRED_NAMES and names[1] not in naming.PRED_NAMES:
            return "loss", (_GUESS, _TRUTH), (names[1], names[0])
        return "loss", (_TRUTH, _GUESS), (names[0], names[1])
    unnamed = ("", "")
    if family == "metric" and name in ("update_state", "result"):
        guess = _GUESS.but(differentiable=False)
        return "metric", (_TRUTH, guess, _WEIGHT) if name == "update_state" else (), unnamed
    if family == "model":
        takes_any = method.node.args.vararg is not None
        if name in ("train_step", "test_step", "predict_step") and (names or takes_any):
            data = Tuple((_INPUTS, _TRUTH))
            return "step", (*([UNKNOWN] * (len(names) - (not takes_any))), data), unnamed
        if name in ("compute_loss", "compute_loss_and_updates", "compute_metrics"):
            known = {"x": _INPUTS, "y": _TRUTH, "y_pred": _GUESS, "sample_weight": _WEIGHT}
            kind = "loss" if name == "compute_loss" else "step"
            return kind, tuple(known.get(one, UNKNOWN) for one in names), unnamed
    if family == "callback" and (naming.BATCH_HOOKS.match(name) or naming.EPOCH_HOOKS.match(name)):
        return "callback", (Static("number"), Static("dict")), unnamed
    return None
