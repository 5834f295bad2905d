"""Makes a recorded step shorter without changing a bit of its results.

In order: aliases and needless copies go, what depends on constants alone is computed now, equal computations are done once,
`variable.copy_(a + b)` becomes one operation that writes to the variable, what nobody needs is dropped, and results take
the memory of operands that are not needed any more.
"""

from __future__ import annotations

import functools
from collections import Counter
from typing import Any

import torch

from .torch_graph import Graph, Instruction, Ref, is_pure, is_random, map_refs, refs_in, results_of, written_refs

_aten = torch.ops.aten
_ALIASES = {_aten.detach.default, _aten.alias.default, _aten.lift_fresh.default}
_COPIES = {_aten.clone.default, _aten._to_copy.default}
_FROM_SHAPE_ALONE = {
    _aten.ones_like.default,
    _aten.zeros_like.default,
    _aten.full_like.default,
    _aten.new_zeros.default,
    _aten.new_ones.default,
    _aten.new_full.default,
}
_LARGEST_CONSTANT = 4 << 20


def optimize(graph: Graph) -> tuple[Graph, Graph]:
    """Two shorter graphs with the same effects: with the outputs, and without any."""
    graph = graph.copy()
    simplify(graph)
    loud, quiet = graph, graph.copy()
    quiet.outputs = []
    for variant in (loud, quiet):
        drop_dead(variant)
        write_in_place(variant)
        reuse_memory(variant)
    return loud, quiet


def simplify(graph: Graph) -> None:
    """Remove aliases, needless copies, constant and repeated computations, in one walk."""
    values = graph.values
    last_write: dict[int, int] = {}
    for position, instruction in enumerate(graph.instructions):
        for storage in graph.written_storages(instruction):
            last_write[storage] = position
    changing = {index for index, value in enumerate(values) if value.storage in last_write}
    versions: Counter[int] = Counter()
    known: dict[Any, Any] = {}
    replaced: dict[int, int] = {}
    constant = {index for index, value in enumerate(values) if value.kind == "constant"}
    kept: list[Instruction] = []

    def current(ref: Ref) -> Ref:
        return Ref(replaced.get(ref.index, ref.index))

    for position, instruction in enumerate(graph.instructions):
        args, kwargs = map_refs(current, instruction.args), map_refs(current, instruction.kwargs)
        instruction = Instruction(instruction.target, args, kwargs, instruction.results)
        target, results = instruction.target, list(results_of(instruction))
        if not is_pure(target):
            for storage in graph.written_storages(instruction):
                versions[storage] += 1
            kept.append(instruction)
            continue
        inputs = list(refs_in((args, kwargs)))
        if results and inputs and isinstance(instruction.results, int):
            source, result = values[inputs[0].index], values[instruction.results]
            is_alias = target in _ALIASES or (
                len(inputs) == 1
                and source.storage == result.storage
                and source.has_layout_of(result)
                and source.offset == result.offset
            )
            is_idle_copy = (
                (target in _COPIES or (target is _aten.sum.default and len(args) == 1 and not source.shape))
                and source.has_layout_of(result)
                and last_write.get(source.storage, -1) < position
                and result.storage not in last_write
            )
            if is_alias or is_idle_copy:
                replaced[instruction.results] = inputs[0].index
                continue
            chosen = _chosen_branch(graph, instruction, constant)
            if chosen is not None and chosen.index not in changing and instruction.results not in changing:
                replaced[instruction.results] = chosen.index
                continue
        untouched = not any(values[result].storage in last_write for result in results)
        from_constants = target in _FROM_SHAPE_ALONE or all(ref.index in constant for ref in inputs)
        if untouched and from_constants and _fold(graph, instruction):
            constant.update(results)
            continue
        views = bool(inputs) and all(values[r].storage == values[inputs[0].index].storage for r in results)
        if untouched or views:
            stamp = tuple(versions[values[ref.index].storage] for ref in inputs)
            key = (target, _frozen(args), _frozen(kwargs), stamp)
            if key in known:
                replaced.update(zip(results, known[key], strict=True))
                continue
            known[key] = results
        kept.append(instruction)
    graph.instructions = kept
    graph.outputs = map_refs(current, graph.outputs)


def _fold(graph: Graph, instruction: Instruction) -> bool:
    """Compute an instruction on constants now; False if it is left for later."""
    sizes = [graph.values[r] for r in results_of(instruction)]
    if "empty" in instruction.target.__name__ or any(_bytes(v) > _LARGEST_CONSTANT for v in sizes):
        return False

    def tensor(ref: Ref) -> Any:
        value = graph.values[ref.index]
        if value.tensor is None:
            return torch.empty_strided(value.shape, value.stride, dtype=value.dtype, device=value.device)
        return value.tensor

    with torch.no_grad():
        out = instruction.target(*map_refs(tensor, instruction.args), **map_refs(tensor, instruction.kwargs))
    outs = [out] if isinstance(out, torch.Tensor) else out
    numbers = [instruction.results] if isinstance(instruction.results, int) else instruction.results
    for number, item in zip(numbers, outs, strict=True):
        if number is not None:
            old = graph.values[number]
            graph.values[number] = type(old)(
                "constant", old.storage, old.shape, old.stride, old.offset, old.dtype, old.device, item
            )
    return True


def _chosen_branch(graph: Graph, instruction: Instruction, constant: set[int]) -> Ref | None:
    """The operand that `torch.where` returns whole, if its condition is a single known truth value."""
    if instruction.target is not _aten.where.self or not all(isinstance(a, Ref) for a in instruction.args):
        return None
    condition, *operands = instruction.args
    known = graph.values[condition.index].tensor if condition.index in constant else None
    if known is None or known.numel() != 1:
        return None
    chosen = operands[0] if known.item() else operands[1]
    return chosen if graph.values[chosen.index].has_layout_of(graph.values[instruction.results]) else None


def _bytes(value: Any) -> int:
    size = value.dtype.itemsize
    for extent in value.shape:
        size *= extent
    return size


def _frozen(structure: Any) -> Any:
    """A hashable copy that tells 1, 1.0 and True apart."""
    if isinstance(structure, (list, tuple)):
        return tuple(map(_frozen, structure))
    if isinstance(structure, dict):
        return tuple((key, _frozen(item)) for key, item in sorted(structure.items()))
    if isinstance(structure, (bool, int, float, complex)):
        return (type(structure), repr(structure))
    return structure


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
        elif isinstance(instruction.results, int) and torch.Tag.pointwise in getattr(instruction.target, "tags", ()):
            if is_pure(instruction.target):
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
def _out_variant(target: Any) -> Any:
    """The overload that takes the same arguments and writes to `out`."""
    wanted = [(a.name, str(a.type)) for a in target._schema.arguments]
    for name in target.overloadpacket.overloads():
        overload = getattr(target.overloadpacket, name)
        arguments = [(a.name, str(a.type)) for a in overload._schema.arguments]
        if arguments == [*wanted, ("out", "Tensor")]:
            return overload
    return None


def drop_dead(graph: Graph) -> None:
    """Remove instructions whose results nobody reads; writes to outside tensors and random draws stay."""
    values = graph.values
    outside = {value.storage for value in values if value.kind == "external"}
    wanted = {ref.index for ref in refs_in(graph.outputs)}
    storages = {values[index].storage for index in wanted}
    kept: list[Instruction] = []
    for instruction in reversed(graph.instructions):
        written = graph.written_storages(instruction)
        is_wanted = (
            not (isinstance(instruction.target, torch._ops.OpOverload) or written)
            or is_random(instruction.target)
            or not (written.isdisjoint(outside) and written.isdisjoint(storages))
            or any(result in wanted for result in results_of(instruction))
        )
        if is_wanted:
            kept.append(instruction)
            for ref in refs_in((instruction.args, instruction.kwargs)):
                wanted.add(ref.index)
                storages.add(values[ref.index].storage)
    graph.instructions = kept[::-1]


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
