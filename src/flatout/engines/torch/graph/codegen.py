"""Turns a graph into one Python function that does nothing but call ATen operations."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from .step_graph import Graph, Instruction, Ref, map_refs, refs_in, results_of

_BINDINGS = (
    torch._C._VariableFunctions,
    torch._C.TensorBase,
    torch._C._nn,
    torch._C._linalg,
    torch._C._special,
    torch._C._fft,
)
Step = Callable[..., list[Any]]


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
        return self._chosen.get(self._key(instruction), _plain(instruction.target))

    def _key(self, instruction: Instruction) -> Any:
        kinds = tuple(_kind(item) for item in instruction.args)
        return instruction.target, kinds, tuple((k, _kind(v)) for k, v in sorted(instruction.kwargs.items()))

    def call(self, instruction: Instruction, args: Any, kwargs: Any) -> Any:
        """Run an instruction, choosing its callable if it has none yet."""
        key = self._key(instruction)
        if not isinstance(instruction.target, torch._ops.OpOverload):
            return instruction.target(*args, **kwargs)
        if key in self._chosen:
            return self._chosen[key](*args, **kwargs)
        for candidate in _candidates(instruction.target):
            seen = _Refusing(instruction.target)
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
        self._chosen[key] = _plain(instruction.target)
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


def _kind(item: Any) -> Any:
    if isinstance(item, (list, tuple)):
        return "list", type(item[0]).__name__ if item else ""
    return type(item).__name__


def interpret(graph: Graph, inputs: list[torch.Tensor], calls: Calls) -> list[Any]:
    """Run a graph one instruction at a time; fills `calls`."""
    environment: dict[int, Any] = dict(zip(graph.inputs, inputs, strict=True))
    last_use = _last_uses(graph)

    def value(ref: Ref) -> Any:
        held = graph.values[ref.index].tensor
        return environment[ref.index] if held is None else held

    with torch.no_grad(), torch._C._AutoDispatchBelowAutograd():
        for position, instruction in enumerate(graph.instructions):
            out = calls.call(instruction, map_refs(value, instruction.args), map_refs(value, instruction.kwargs))
            _assign(environment, instruction.results, out)
            for index in last_use.get(position, ()):
                environment.pop(index, None)
        return [value(o).clone() if isinstance(o, Ref) else o for o in graph.outputs]


def _assign(environment: dict[int, Any], numbers: Any, out: Any) -> None:
    if isinstance(numbers, int):
        environment[numbers] = out
    elif numbers is not None:
        for number, item in zip(numbers, out or (), strict=False):
            _assign(environment, number, item)


def compile_graph(graph: Graph, calls: Calls) -> Step:
    """One Python function of the batch's leaves that runs the graph and returns its outputs."""
    names: dict[int, str] = {index: f"v{index}" for index in graph.inputs}
    namespace: dict[str, Any] = {}
    functions: dict[Any, str] = {}

    def name_of(ref: Ref) -> str:
        index = ref.index
        if index not in names:
            names[index] = f"k{index}"
            namespace[names[index]] = graph.values[index].tensor
        return names[index]

    def source_of(item: Any) -> str:
        if isinstance(item, Ref):
            return name_of(item)
        if isinstance(item, (list, tuple)):
            inner = ", ".join(map(source_of, item))
            return f"[{inner}]" if isinstance(item, list) else f"({inner}{',' if len(item) == 1 else ''})"
        if item is None or isinstance(item, (bool, int)) or (isinstance(item, float) and abs(item) < float("inf")):
            return repr(item)
        name = f"o{len(namespace)}"
        namespace[name] = item
        return name

    last_use = _last_uses(graph)
    lines = [f"def step({', '.join(names[index] for index in graph.inputs)}):"]
    for position, instruction in enumerate(graph.instructions):
        function = calls.of(instruction)
        if function not in functions:
            functions[function] = f"f{len(functions)}"
            namespace[functions[function]] = function
        arguments = [source_of(item) for item in instruction.args]
        arguments += [f"{key}={source_of(item)}" for key, item in instruction.kwargs.items()]
        call = f"{functions[function]}({', '.join(arguments)})"
        lines.append(f"    {_assignment(instruction, names)}{call}")
        if ended := [names[index] for index in last_use.get(position, ()) if index in names]:
            lines.append(f"    del {', '.join(ended)}")
    outside = {v.storage for v in graph.values if v.kind != "computed"}
    outputs = []
    for item in graph.outputs:
        source = source_of(item)
        if isinstance(item, Ref) and graph.values[item.index].storage in outside:
            source += ".clone()"
        outputs.append(source)
    lines.append(f"    return [{', '.join(outputs)}]")
    exec(compile("\n".join(lines), "<flatout step>", "exec"), namespace)
    return namespace["step"]


def late_step(graph: Graph, calls: Calls) -> Step:
    """A step that finds the quickest calls when it runs for the first time, and is compiled then."""
    compiled: list[Step] = []

    def step(*inputs: torch.Tensor) -> list[Any]:
        if compiled:
            return compiled[0](*inputs)
        outputs = interpret(graph, list(inputs), calls)
        compiled.append(compile_graph(graph, calls))
        return outputs

    return step


def _assignment(instruction: Instruction, names: dict[int, str]) -> str:
    known = {ref.index for ref in refs_in((instruction.args, instruction.kwargs))}
    fresh = [number for number in results_of(instruction) if number not in known and number not in names]
    if not fresh:
        return ""
    names.update((number, f"v{number}") for number in fresh)

    def target(numbers: Any) -> str:
        if isinstance(numbers, (list, tuple)):
            return f"[{', '.join(map(target, numbers))}]"
        return f"v{numbers}" if numbers in fresh else "_"

    return f"{target(instruction.results)} = "


def _last_uses(graph: Graph) -> dict[int, list[int]]:
    """After which instruction each computed value may be forgotten."""
    last: dict[int, int] = {}
    for position, instruction in enumerate(graph.instructions):
        for ref in refs_in((instruction.args, instruction.kwargs)):
            last[ref.index] = position
        for number in results_of(instruction):
            last.setdefault(number, position)
    kept = {ref.index for ref in refs_in(graph.outputs)} | set(graph.inputs)
    ends: dict[int, list[int]] = {}
    for index, position in last.items():
        if index not in kept and graph.values[index].kind == "computed":
            ends.setdefault(position, []).append(index)
    return ends
