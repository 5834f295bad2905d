"""Turns a graph into one Python function that does nothing but call ATen operations."""

from __future__ import annotations

import functools
import re
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from .step_graph import Graph, Instruction, Ref, all_in

_NAMES_OF_BINDINGS = ("_VariableFunctions", "TensorBase", "_nn", "_linalg", "_special", "_fft")
_BINDINGS = [getattr(torch._C, name) for name in _NAMES_OF_BINDINGS]
Step = Callable[..., list[Any]]

# An operation warns where the step is recorded, as in stock Keras: when it runs again it would name this file.
warnings.filterwarnings("ignore", module=re.escape(__name__))


def _candidates(target: Any) -> Iterator[Callable[..., Any]]:
    # `torch.add` costs half of `torch.ops.aten.add.Tensor` (2.4 us against 5.9 on a 2-core Arm machine): its arguments
    # are parsed by generated code, and there is no boxing.
    name = target._schema.name.partition("::")[2]
    if name == "_to_copy":
        yield torch._C.TensorBase.to
    for namespace in _BINDINGS:
        if hasattr(namespace, name):
            yield getattr(namespace, name)


class Calls:
    """The quickest callable for each operation, seen on the first real call to dispatch that very operation."""

    def __init__(self) -> None:
        self._chosen: dict[Any, Callable[..., Any]] = {}

    def of(self, instruction: Instruction) -> Callable[..., Any]:
        """The callable chosen for an instruction, else the operation itself."""
        return self._chosen.get(_key(instruction), _plain(instruction.target))

    def call(self, instruction: Instruction, /, *args: Any, **kwargs: Any) -> Any:
        """Run an instruction, choosing its callable if it has none yet."""
        key, target = _key(instruction), instruction.target
        if key in self._chosen or not isinstance(target, torch._ops.OpOverload):
            return self.of(instruction)(*args, **kwargs)
        for candidate in _candidates(target):
            seen = _Refusing(target)
            try:
                with seen:
                    out = candidate(*args, **kwargs)
            except (TypeError, ValueError, RuntimeError, NotImplementedError, _OtherOperation):
                if seen.count:
                    raise
                continue
            if seen.count == 1:
                self._chosen[key] = candidate
                return out
        self._chosen[key] = _plain(target)
        return self._chosen[key](*args, **kwargs)


class _OtherOperation(Exception):
    pass


class _Refusing(TorchDispatchMode):
    """Lets one operation pass and stops any other before it has an effect."""

    def __init__(self, wanted: Any):
        super().__init__()
        self.wanted = wanted
        self.count = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is not self.wanted or self.count:
            raise _OtherOperation
        self.count += 1
        return func(*args, **(kwargs or {}))


def _plain(target: Any) -> Callable[..., Any]:
    return getattr(target, "_op", target)


def _key(instruction: Instruction) -> Any:
    kinds = tuple(_kind(item) for item in instruction.args)
    return instruction.target, kinds, tuple((k, _kind(v)) for k, v in sorted(instruction.kwargs.items()))


def _kind(item: Any) -> Any:
    if isinstance(item, (list, tuple)):
        return "list", type(item[0]).__name__ if item else ""
    return type(item).__name__


def compile_graph(graph: Graph, function_of: Callable[[Instruction], Callable[..., Any]]) -> Step:
    """One Python function of the batch's leaves that runs the graph and returns its outputs."""
    names: dict[int, str] = {index: f"v{index}" for index in graph.inputs}
    namespace: dict[str, Any] = {"__name__": __name__}

    def bound(thing: Any) -> str:
        name = f"o{len(namespace)}"
        namespace[name] = thing
        return name

    def source_of(item: Any) -> str:
        if isinstance(item, Ref):
            if item.index not in names:
                names[item.index] = bound(graph.values[item.index].tensor)
            return names[item.index]
        if isinstance(item, (list, tuple)):
            inner = ", ".join(map(source_of, item))
            return f"[{inner}]" if isinstance(item, list) else f"({inner}{',' if len(item) == 1 else ''})"
        if item is None or isinstance(item, (bool, int)) or (isinstance(item, float) and abs(item) < float("inf")):
            return repr(item)
        return bound(item)

    lines = [f"def step({', '.join(names[index] for index in graph.inputs)}):"]
    for number, (instruction, ended) in enumerate(zip(graph.instructions, _last_uses(graph), strict=True)):
        namespace[f"f{number}"] = function_of(instruction)
        arguments = [source_of(item) for item in instruction.args]
        arguments += [f"{key}={source_of(item)}" for key, item in instruction.kwargs.items()]
        lines.append(f"    {_assignment(instruction, names)}f{number}({', '.join(arguments)})")
        if spent := [names[index] for index in ended if index in names]:
            lines.append(f"    del {', '.join(spent)}")
    outside = {value.storage for value in graph.values if value.kind != "computed"}
    outputs = [source_of(item) for item in graph.outputs]
    for number, item in enumerate(graph.outputs):
        if isinstance(item, Ref) and graph.values[item.index].storage in outside:
            outputs[number] += ".clone()"
    lines.append(f"    return [{', '.join(outputs)}]")
    exec(compile("\n".join(lines), "<flatout step>", "exec"), namespace)
    return namespace["step"]


def late_step(graph: Graph, calls: Calls) -> Step:
    """A step that is compiled when it runs for the first time, and finds the quickest calls then."""
    compiled: list[Any] = []

    def step(*inputs: torch.Tensor) -> list[Any]:
        if compiled:
            return compiled[0](*inputs)
        first = compile_graph(graph, lambda instruction: functools.partial(calls.call, instruction))
        with torch.no_grad(), torch._C._AutoDispatchBelowAutograd():
            outputs = first(*inputs)
        for number, instruction in enumerate(graph.instructions):
            first.__globals__[f"f{number}"] = calls.of(instruction)
        compiled.append(first)
        return outputs

    return step


def _assignment(instruction: Instruction, names: dict[int, str]) -> str:
    known = {ref.index for ref in instruction.refs} | names.keys()
    fresh = [number for number in instruction.numbers if number not in known]
    if not fresh:
        return ""
    names.update((number, f"v{number}") for number in fresh)

    def target(numbers: Any) -> str:
        if isinstance(numbers, list):
            return f"[{', '.join(map(target, numbers))}]"
        return f"v{numbers}" if numbers in fresh else "_"

    return f"{target(instruction.results)} = "


def _last_uses(graph: Graph) -> list[list[int]]:
    """The computed values that nobody needs any more, after each instruction."""
    needed = {ref.index for ref in all_in(Ref, graph.outputs)} | set(graph.inputs)
    ends = []
    for instruction in reversed(graph.instructions):
        used = {ref.index for ref in instruction.refs} | set(instruction.numbers)
        ends.append([index for index in used - needed if graph.values[index].kind == "computed"])
        needed |= used
    return ends[::-1]
