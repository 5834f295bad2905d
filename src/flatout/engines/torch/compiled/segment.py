"""The parts of a recorded step that are compiled: written as JSON for the compiler, and called in the step's graph."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch

from flatout.engines.torch.graph.step_graph import Graph, Instruction, Ref, Value, all_in

from .stages import Stage, in_stages, with_early_draws, with_updates_as_operations


class CannotCompile(Exception):
    """The step has something that a compiler would not do as it is written; says what."""


@dataclass(frozen=True)
class Segment:
    """Instructions that are compiled together, the numbers of the values that they take, and of those they leave."""

    instructions: list[Instruction]
    inputs: list[int]
    outputs: list[int]


@dataclass(frozen=True)
class SegmentedStep:
    """A graph, and its stages with their compiled parts."""

    graph: Graph
    stages: list[tuple[Stage, Segment]]

    @property
    def parts(self) -> list[dict[str, Any]]:
        """What the compiler needs to know of each."""
        return [_part(self.graph, segment) for _, segment in self.stages if segment.instructions]

    @property
    def memory(self) -> dict[str, int]:
        """Bytes that the largest part is given, on each GPU."""
        most: Counter[str] = Counter()
        for _, segment in self.stages:
            given: Counter[str] = Counter()
            for index in segment.inputs:
                given[str(self.graph.values[index].device)] += self.graph.values[index].nbytes
            most |= given
        return {device: nbytes for device, nbytes in most.items() if device.startswith("cuda")}

    def with_compiled(self, functions: list[Callable[..., Any]]) -> Graph:
        """The graph with each part as one call."""
        graph = self.graph.copy()
        # Compiled code asks whether what it writes to needs gradients; nothing here does.
        graph.values = [_detached(value) for value in graph.values]
        graph.instructions = []
        waiting = iter(functions)
        for stage, segment in self.stages:
            graph.instructions += stage.as_they_are
            if not segment.instructions:
                continue
            written = self.graph.written_storages(*segment.instructions)
            positions = [n for n, index in enumerate(segment.inputs) if graph.values[index].storage in written]
            target = CompiledPart(next(waiting), tuple((position, "", False) for position in positions))
            graph.instructions.append(Instruction(target, tuple(map(Ref, segment.inputs)), {}, segment.outputs))
        return graph


@dataclass(frozen=True, eq=False)
class CompiledPart:
    """Compiled code as the target of an instruction; it writes to some of its arguments."""

    function: Callable[..., Any]
    written_arguments: tuple[tuple[int, str, bool], ...]

    def __call__(self, *inputs: torch.Tensor) -> Any:
        return self.function(*inputs)


def segmented(graph: Graph) -> SegmentedStep:
    """Divide a step into parts that can be compiled.

    Raises:
        CannotCompile: It writes to memory that several of its tensors share, which no compiler is told of.
    """
    graph = with_early_draws(with_updates_as_operations(graph))
    stages = in_stages(graph)
    wanted = {ref.index for ref in all_in(Ref, graph.outputs)}
    segments: list[Segment] = []
    for stage in reversed(stages):
        made = set(_made(stage.compiled))
        used = {ref.index for instruction in stage.compiled for ref in instruction.refs}
        inputs = sorted(index for index in used - made if not _is_scalar(graph.values[index]))
        segments.append(Segment(stage.compiled, inputs, sorted(made & wanted)))
        wanted |= used - made | {ref.index for instruction in stage.as_they_are for ref in instruction.refs}
    segments.reverse()
    for segment in segments:
        _check_sharing(graph, segment)
    return SegmentedStep(graph, list(zip(stages, segments, strict=True)))


def _made(instructions: list[Instruction]) -> list[int]:
    """The numbers of values that do not exist before these instructions."""
    known: set[int] = set()
    made: dict[int, None] = {}
    for instruction in instructions:
        known.update(ref.index for ref in instruction.refs if ref.index not in made)
        made.update((number, None) for number in instruction.numbers if number not in known)
    return list(made)


def _check_sharing(graph: Graph, segment: Segment) -> None:
    written = graph.written_storages(*segment.instructions)
    outside = Counter(graph.values[index].storage for index in {*segment.inputs, *segment.outputs})
    if any(outside[storage] > 1 for storage in written):
        raise CannotCompile("it writes to memory that several of its tensors share")
    for index in segment.inputs:
        value = graph.values[index]
        if value.offset * value.dtype.itemsize % 16:
            raise CannotCompile("it uses a part of a tensor that does not begin at a multiple of 16 bytes")


def _is_scalar(value: Value) -> bool:
    return value.kind == "constant" and value.shape == ()


def _detached(value: Value) -> Value:
    if value.tensor is None or not value.tensor.requires_grad:
        return value
    return replace(value, tensor=value.tensor.detach())


def _part(graph: Graph, segment: Segment) -> dict[str, Any]:
    values = graph.values
    used = sorted({ref.index for instruction in segment.instructions for ref in instruction.refs})
    return {
        "inputs": segment.inputs,
        "outputs": segment.outputs,
        "layouts": {str(index): _layout(values[index]) for index in segment.inputs},
        "scalars": [_scalar(index, values[index]) for index in used if _is_scalar(values[index])],
        "calls": [_call(instruction) for instruction in segment.instructions],
    }


def _layout(value: Value) -> list[Any]:
    return [list(value.shape), list(value.stride), _name(value.dtype), str(value.device)]


def _scalar(index: int, value: Value) -> list[Any]:
    assert value.tensor is not None
    return [index, _encoded(value.tensor.item()), _name(value.dtype), str(value.device)]


def _call(instruction: Instruction) -> list[Any]:
    target = instruction.target
    keywords = {key: _encoded(item) for key, item in instruction.kwargs.items()}
    return [target._schema.name, target._overloadname, _encoded(instruction.args), keywords, instruction.results]


@functools.singledispatch
def _encoded(item: Any) -> Any:
    raise CannotCompile(f"it calls an operation with {item!r}")


@_encoded.register(type(None))
@_encoded.register(bool)
@_encoded.register(int)
@_encoded.register(float)
@_encoded.register(str)
def _(item: Any) -> Any:
    return item


@_encoded.register(list)
@_encoded.register(tuple)
def _(item: Any) -> Any:
    return [_encoded(one) for one in item]


@_encoded.register(Ref)
def _(item: Ref) -> Any:
    return {"value": item.index}


@_encoded.register(torch.device)
def _(item: torch.device) -> Any:
    return {"device": str(item)}


@_encoded.register(torch.dtype)
@_encoded.register(torch.layout)
@_encoded.register(torch.memory_format)
def _(item: Any) -> Any:
    return {"torch": _name(item)}


def _name(item: Any) -> str:
    return str(item).removeprefix("torch.")
