"""Training loops that users write themselves: what their body does, it does after every batch."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from flatout.check.values.abstract_values import UNKNOWN, AbstractValue, Data, Function, Static
from flatout.check.values.names import Names
from flatout.pysource.file_facts import FileFacts
from flatout.pysource.source_file import SourceFile
from flatout.pysource.trees import last_name, leaves, method_name, walk

from . import naming
from .root import Root

_LOOPS = (ast.For, ast.While)
_STEPS = frozenset(["apply_gradients", "backward", "train_on_batch", "value_and_grad", "stateless_apply"])


def loops_of(file: SourceFile, names: Names, facts: FileFacts) -> Iterator[Root]:
    """The innermost loops of a file that take a training step, themselves or by a function of the file."""
    functions = [one for one in walk(file.tree) if isinstance(one, ast.FunctionDef) and _takes(one.body, _STEPS)]
    steps = _STEPS | {one.name for one in functions if not any(isinstance(inner, _LOOPS) for inner in walk(one.body))}
    for node in walk(file.tree):
        inner = [one.body for one in walk(node.body) if isinstance(one, _LOOPS)] if isinstance(node, ast.For) else []
        if isinstance(node, ast.For) and _takes(node.body, steps) and not any(_takes(body, steps) for body in inner):
            batch = [leaf.id for leaf in leaves(node.target) if isinstance(leaf, ast.Name)]
            arguments = ast.arguments(
                posonlyargs=[], args=[ast.arg(name) for name in batch], kwonlyargs=[], kw_defaults=[], defaults=[]
            )
            body = ast.FunctionDef(name="training loop", args=arguments, body=node.body, decorator_list=[])
            function = Function(ast.copy_location(body, node), file, names, None, body.name)
            yield Root("loop", "the training loop", function, tuple(map(argument_named, batch)), facts)


def argument_named(name: str) -> AbstractValue:
    """What a parameter of a step is, by its name: a batch, its targets, or nothing that is known."""
    if name in naming.NO_TENSORS or name in naming.NETWORKS:
        return UNKNOWN
    if name in naming.COUNTERS:
        return Static("number")
    return Data(frozenset({"true" if name in naming.TRUE_NAMES else "x"}), mapping=name not in naming.TRUE_NAMES)


def _takes(body: list[ast.stmt], steps: frozenset[str]) -> bool:
    """Whether one of these is called."""
    return any(method_name(one) in steps or last_name(getattr(one, "func", None)) in steps for one in walk(body))
