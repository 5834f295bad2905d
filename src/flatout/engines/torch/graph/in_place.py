"""Lets operations write to memory that is there already: to the variable that is assigned, or to a spent operand."""

from __future__ import annotations

import functools
from collections import Counter
from typing import Any

import torch

from .step_graph import Graph, Instruction, Ref, is_pure, map_refs, refs_in, results_of, written_refs

_aten = torch.ops.aten


def write_in_place(graph: Graph) -> None:
    """Turn `t = op(...); variable.copy_(t)` into `op(..., out=variable)`."""
    values = graph.values
    uses = Counter(ref.index for i in graph.instructions for ref in refs_in((i.args, i.kwargs)))
    uses.update(ref.index for ref in refs_in(graph.outputs))
    made_at: dict[int, int] = {}
    last_write: dict[int, int] = {}
    dropped: set[int] = set()
    for position, instruction in enumerate(graph.instructions):
        if instruction.target is _aten.copy_.default and len(instruction.args) == 2:
            variable, source = instruction.args
            origin = made_at.get(source.index)
            if origin is not None and uses[source.index] == 1:
                merged = _merge(graph, graph.instructions[origin], variable, instruction.results, origin, last_write)
                if merged is not None:
                    graph.instructions[position] = merged
                    dropped.add(origin)
        elif isinstance(instruction.results, int) and _is_pointwise(instruction.target):
            made_at[instruction.results] = position
        for ref in written_refs(graph.instructions[position]):
            last_write[values[ref.index].storage] = position
    graph.instructions = [i for position, i in enumerate(graph.instructions) if position not in dropped]


def _merge(
    graph: Graph, maker: Instruction, variable: Ref, results: Any, origin: int, last_write: dict[int, int]
) -> Instruction | None:
    values = graph.values
    target = _out_variant(maker.target)
    goal, made = values[variable.index], values[maker.results]
    if target is None or (goal.shape, goal.dtype, goal.device) != (made.shape, made.dtype, made.device):
        return None
    if goal.stride != made.stride:
        return None
    for ref in refs_in((maker.args, maker.kwargs)):
        read = values[ref.index]
        if last_write.get(read.storage, -1) > origin:
            return None
        if read.storage == goal.storage and ref != variable:
            return None
    return Instruction(target, maker.args, {**maker.kwargs, "out": variable}, results)


@functools.cache
def _is_pointwise(target: Any) -> bool:
    return is_pure(target) and torch.Tag.pointwise in target.tags


@functools.cache
def _out_variant(target: Any) -> Any:
    """The overload that takes the same arguments and writes to `out`."""
    wanted = [(a.name, str(a.type)) for a in target._schema.arguments]
    for name in target.overloadpacket.overloads():
        overload = getattr(target.overloadpacket, name)
        arguments = [(a.name, str(a.type)) for a in overload._schema.arguments]
        if arguments == [*wanted, ("out", "Tensor")]:
            return overload
    return None


def reuse_memory(graph: Graph) -> None:
    """Let pointwise operations overwrite an operand that nobody reads afterwards: it is still in the cache."""
    values = graph.values
    home = {value.storage: value.storage for value in values}
    reads: Counter[int] = Counter()
    for instruction in graph.instructions:
        reads.update(graph.storages_of(instruction))
    fixed = {value.storage for value in values if value.kind != "computed"}
    fixed |= {values[ref.index].storage for ref in refs_in(graph.outputs)}
    renamed: dict[int, int] = {}

    def current(ref: Ref) -> Ref:
        return Ref(renamed.get(ref.index, ref.index))

    def storage_of(ref: Ref) -> int:
        return home[values[ref.index].storage]

    for position, instruction in enumerate(graph.instructions):
        args, kwargs = map_refs(current, instruction.args), map_refs(current, instruction.kwargs)
        instruction = Instruction(instruction.target, args, kwargs, instruction.results)
        graph.instructions[position] = instruction
        for storage in {storage_of(ref) for ref in refs_in((args, kwargs))}:
            reads[storage] -= 1
        target = _in_place_variant(instruction.target) if is_pure(instruction.target) and args else None
        if target is None:
            continue
        operands = args[0] if isinstance(args[0], list) else [args[0]]
        results = list(results_of(instruction))
        taken = [storage_of(ref) for ref in operands if isinstance(ref, Ref)]
        others = {storage_of(ref) for ref in refs_in((args[1:], kwargs))}
        if len(set(taken)) == len(results) == len(operands) and all(
            storage not in fixed
            and storage not in others
            and not reads[storage]
            and values[ref.index].has_layout_of(values[result])
            for storage, ref, result in zip(taken, operands, results, strict=True)
        ):
            for storage, ref, result in zip(taken, operands, results, strict=True):
                renamed[result] = ref.index
                reads[storage] = reads[values[result].storage]
                if values[result].storage in fixed:
                    fixed.add(storage)
                home[values[result].storage] = storage
            instruction.target = target
            instruction.results = operands[0].index if isinstance(instruction.results, int) else None
    graph.outputs = map_refs(current, graph.outputs)


@functools.cache
def _in_place_variant(target: Any) -> Any:
    """The overload of `op_` that takes the arguments of a pointwise `op`."""
    name = target._schema.name.partition("::")[2]
    if not (name.startswith("_foreach_") or torch.Tag.pointwise in target.tags):
        return None
    packet = getattr(_aten, f"{name}_", None)
    wanted = [(a.name, str(a.type)) for a in target._schema.arguments]
    for overload_name in packet.overloads() if packet is not None else ():
        overload = getattr(packet, overload_name)
        if [(a.name, str(a.type)) for a in overload._schema.arguments] == wanted:
            return overload
    return None
