"""Makes a recorded step shorter without changing a bit of its results.

In order: aliases and needless copies go, what depends on constants alone is computed now, equal computations are done
once, and what nobody needs is dropped. Then operations are made to write in place (`torch_in_place.py`).
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import torch

from .in_place import reuse_memory, write_in_place
from .step_graph import Graph, Instruction, Ref, is_pure, is_random, map_refs, refs_in, results_of

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
    if isinstance(instruction.results, list) and any(isinstance(number, list) for number in instruction.results):
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
