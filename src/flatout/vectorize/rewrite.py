"""The rewrite of a loss as array code: source in, source out; nothing is run or compared (see `verify`)."""

from __future__ import annotations

import ast
import logging
import textwrap
import types
from collections.abc import Mapping
from typing import Any

from flatout.pysource.trees import defaults
from flatout.vectorize.arrays.algebra import front
from flatout.vectorize.arrays.expression_graph import Node, Printer, text_of
from flatout.vectorize.arrays.lifted_values import Axis, Host, Known, Refused, Tensor, WrongRank
from flatout.vectorize.arrays.lifting import Lifting
from flatout.vectorize.interpreter.heap import read
from flatout.vectorize.interpreter.interpreter import Interpreter
from flatout.vectorize.interpreter.scopes import Scope, outside_of, scope_of
from flatout.vectorize.mapping.mapped_loop import map_samples
from flatout.vectorize.reading.function_source import tree_of
from flatout.vectorize.verify.gradients import backend, widest_integers
from flatout.vectorize.verify.verification import NoRewrite, Rewrite

_log = logging.getLogger("flatout")


def rewrite_function(function: Any, ranks: Mapping[str, int], holder: Any = None, **forms: bool) -> Rewrite | NoRewrite:
    """Rewrite a plain function for arrays of the given ranks, in a form of `Lifting`; `holder` is what `self` is."""
    try:
        return _rewrite(function, ranks, holder, forms)
    except Refused as refused:
        is_rank = isinstance(refused, WrongRank)
        return NoRewrite(refused.reason, refused.code, refused.line, is_rank, tuple(refused.hints))
    except Exception as error:
        # A fault of ours must not become one of the user's: the original runs.
        _log.debug("vectorize(%s)", function.__name__, exc_info=True)
        return NoRewrite(f"Its code was not understood ({type(error).__name__}: {error}).", "FO101", is_rank=True)


# What no form answers: state from step to step, changes outside, draws, output, files.
_NEVER_MAPPED = ("FO100", "FO106", "FO203", "FO206", "FO303", "FO304")


def map_function(function: Any, ranks: Mapping[str, int], holder: Any, refusal: NoRewrite) -> Rewrite | None:
    """A function whose loop over the samples has no array form, with that loop as a map; None: no such loop."""
    if refusal.code in _NEVER_MAPPED:
        return None
    try:
        tree = tree_of(function)
        if not isinstance(tree, ast.FunctionDef):
            return None
        names = {**outside_of(function), **({} if holder is None else {"self": holder})}
        source = map_samples(tree, ranks, names, *_ops(names))
    except Refused:
        return None
    return Rewrite(source, "map", (), ("FO101",), tuple(ranks.items()), hints=refusal.hints)


def array_parameters(tree: Any) -> list[str]:
    """The parameters that are arrays: those without a default, less `self`."""
    return [arg.arg for arg in tree.args.args if arg.arg not in ("self", "cls", *defaults(tree))]


def candidate_ranks(parameters: list[str]) -> list[dict[str, int]]:
    """Ranks to try, the likelier ones first."""
    pairs = [(2, 2), (1, 2), (1, 1), (3, 3), (2, 3), (3, 4), (4, 4), (1, 3), (2, 1), (2, 4), (3, 2)]
    if len(parameters) == 1:
        pairs = [(rank, 0) for rank in (2, 1, 3, 4)]
    return [
        {name: (pair[at] if at < 2 else extra) for at, name in enumerate(parameters)}
        for extra in ((1, 2) if len(parameters) > 2 else (1,))
        for pair in pairs
    ]


def _rewrite(function: Any, ranks: Mapping[str, int], holder: Any, forms: dict[str, bool]) -> Rewrite:
    tree: Any = tree_of(function)
    scope = scope_of(function)
    arrays = [parameter for parameter in array_parameters(tree) if parameter in ranks]
    lift = Lifting(arrays[1] if len(arrays) > 1 else None, integers=widest_integers(), **forms)
    run = Interpreter(lift, function.__globals__)
    inside = Scope(parent=scope)
    run.heap.add(inside)
    _bind(lift, tree, inside, arrays, ranks, holder)
    try:
        is_lambda = isinstance(tree, ast.Lambda)
        result = run.expression(tree.body, inside) if is_lambda else run.block_value(tree.body, inside)
    except Refused as refused:
        refused.hints = lift.hints
        raise
    node = _returned(lift, read(run, result))
    if not lift.changes and lift.graph.repeats:
        lift.changes.add("FO306")
    if not lift.changes:
        raise Refused(
            "There is nothing to rewrite: no loop, no value read on the host, nothing computed twice.", "FO100"
        )
    source = _printed(run, tree, function.__name__, scope, node)
    return Rewrite(
        source,
        "masked" if lift.changes & {"FO108", "FO202"} or "where" in source else "axis",
        tuple(lift.notes),
        tuple(sorted(lift.changes)),
        tuple(ranks.items()),
        dict(run.injected),
        tuple((text_of(guard), truth) for guard, truth in lift.guards),
        tuple(lift.hints),
        lift.is_tie_sensitive,
        tuple(lift.graph.pins),
    )


def _bind(lift: Lifting, tree: Any, scope: Scope, arrays: list[str], ranks: Mapping[str, int], holder: Any) -> None:
    graph = lift.graph
    batch = graph.size(graph.name(arrays[0]), 0) if arrays else None
    for at, name in enumerate(arrays):
        node = graph.name(name)
        sizes = [graph.size(node, place) for place in range(ranks[name])]
        if sizes and at < 2 and batch is not None and ranks[arrays[0]]:
            sizes[0] = batch  # One batch: as many predictions as targets.
        inner = tuple(Axis("d", size) for size in sizes)
        scope.variables[name] = Tensor(node, inner, inner, "any", domain=name)
    spec = tree.args
    if spec.vararg or spec.kwarg or spec.posonlyargs:
        raise Refused("The function takes a varying number of arguments.")
    for arg in spec.args:
        if arg.arg in ("self", "cls") and arg.arg not in ranks:
            if holder is None:
                raise Refused("A method is rewritten by way of its object: vectorize(loss_object).")
            scope.variables[arg.arg] = Known(holder, graph.name(arg.arg))
    for name, default in defaults(tree).items():
        try:
            value = ast.literal_eval(default)
        except ValueError as error:
            raise Refused(f"The default of {name!r} is no constant.") from error
        node = graph.name(name)
        is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
        if is_number:
            lift.numbers[node] = value
        else:
            lift.stays(node, value)
        scope.variables[name] = Host(node) if is_number else Known(value, node)


def _returned(lift: Lifting, result: Any) -> Node:
    if isinstance(result, Host) or (isinstance(result, Known) and result.value is not None):
        return lift.graph.call("ops.convert_to_tensor", result.node, dtype=lift.graph.const("float32"))
    if not isinstance(result, Tensor):
        raise Refused("The function returns something that is no array.")
    if result.valid is not None or result.is_loose:
        raise Refused("The function returns a selection, whose length depends on the data.", "FO108")
    return front(lift, result).node


def _printed(run: Interpreter, tree: Any, name: str, scope: Scope, result: Node) -> str:
    name = name if name.isidentifier() else "loss"
    ops_name, first = _ops(scope.outside)
    taken = {arg.arg for arg in (*tree.args.args, *tree.args.kwonlyargs)} | set(run.injected) | {"ops", "keras", name}
    taken |= {node.parts[0] for node in result.and_below() if node.kind == "name"}
    # On TensorFlow the length of a batch may be unknown while a step is traced.
    printer = Printer(run.lift.graph, taken, ops_name, is_unsized=backend() == "tensorflow")
    body = textwrap.indent("\n".join(line for line in (first, printer.body(result)) if line), "    ")
    arguments = ast.unparse(getattr(tree, "as_written", tree.args))
    lines = [f"{kept} = {text_of(node, ops_name)}" for kept, node in run.hoisted.items()]
    made = ast.unparse(ast.parse(f"def {name}({arguments}):\n{body}"))
    return "\n".join([*lines, made]) + "\n"


def _ops(outside: Mapping[str, Any]) -> tuple[str, str]:
    """How the source can say `keras.ops`, and the import that it needs first."""
    if getattr(outside.get("ops"), "__name__", "") == "keras.ops":
        return "ops", ""
    held = outside.get("keras")
    if isinstance(held, types.ModuleType) and held.__name__ == "keras":
        return "keras.ops", ""
    return "ops", "from keras import ops"
