"""Makes a recorded step shorter without changing a bit of its results.

In order: aliases go, what depends on constants alone is computed now, equal computations are done once, copies are
spared, and what nobody needs is dropped. Then operations are made to write to the variable that is assigned.
"""

from __future__ import annotations

import functools
from collections import Counter
from dataclasses import replace
from typing import Any

import torch

from .kept_copies import without_kept_copies
from .layouts import with_fewer_copies
from .step_graph import Graph, Instruction, Ref, all_in, is_pure, is_random, map_in

_aten = torch.ops.aten
_ALIASES = {_aten.detach.default, _aten.alias.default, _aten.lift_fresh.default}
_FROM_SHAPE_ALONE = {_aten.ones_like.default, _aten.zeros_like.default, _aten.full_like.default}
_FROM_SHAPE_ALONE |= {_aten.new_zeros.default, _aten.new_ones.default, _aten.new_full.default}
_LARGEST_CONSTANT = 4 << 20


def optimize(graph: Graph) -> tuple[Graph, Graph]:
    """Two shorter graphs with the same effects: with the outputs, and without any."""
    loud = graph.copy()
    _simplify(loud)
    loud = with_fewer_copies(without_kept_copies(loud))
    quiet = loud.copy()
    quiet.outputs = []
    for variant in (loud, quiet):
        _drop_dead(variant)
        _write_in_place(variant)
    return loud, quiet


def _simplify(graph: Graph) -> None:
    """Remove aliases, sums of one value, constant and repeated computations, in one walk."""
    values = graph.values
    written = graph.written_storages(*graph.instructions)
    changing = {index for index, value in enumerate(values) if value.storage in written}
    versions: Counter[int] = Counter()
    known: dict[Any, Any] = {}
    replaced: dict[int, int] = {}
    constant = {index for index, value in enumerate(values) if value.kind == "constant"}
    kept: list[Instruction] = []

    def current(ref: Ref) -> Ref:
        return Ref(replaced.get(ref.index, ref.index))

    for instruction in graph.instructions:
        instruction = instruction.with_refs(current)
        target, results, inputs = instruction.target, instruction.numbers, instruction.refs
        if not is_pure(target):
            versions.update(graph.written_storages(instruction))
            kept.append(instruction)
            continue
        if inputs and isinstance(instruction.results, int):
            source, result = values[inputs[0].index], values[instruction.results]
            is_as_before = len(inputs) == 1 and source.layout == result.layout
            is_view = source.storage == result.storage and source.offset == result.offset
            is_sum_of_scalar = target is _aten.sum.default and not source.shape
            is_sum_of_scalar &= changing.isdisjoint((inputs[0].index, instruction.results))
            if target in _ALIASES or (is_as_before and (is_view or is_sum_of_scalar)):
                replaced[instruction.results] = inputs[0].index
                continue
            is_copy = target is _aten.clone.default and source.layout == result.layout
            if is_copy and changing.isdisjoint((inputs[0].index, instruction.results)):
                replaced[instruction.results] = inputs[0].index
                continue
            chosen = _chosen_branch(graph, instruction, constant)
            if chosen is not None and chosen.index not in changing and instruction.results not in changing:
                replaced[instruction.results] = chosen.index
                continue
        untouched = changing.isdisjoint(results)
        from_constants = target in _FROM_SHAPE_ALONE or all(ref.index in constant for ref in inputs)
        if untouched and from_constants and _fold(graph, instruction):
            constant.update(results)
            continue
        views = bool(inputs) and all(values[r].storage == values[inputs[0].index].storage for r in results)
        if untouched or views:
            stamp = tuple(versions[values[ref.index].storage] for ref in inputs)
            # As text, which tells 1, 1.0 and True apart.
            key = (target, repr((instruction.args, instruction.kwargs)), stamp)
            if key in known:
                replaced.update(zip(results, known[key], strict=True))
                continue
            known[key] = results
        kept.append(instruction)
    graph.instructions = kept
    graph.outputs = map_in(Ref, current, graph.outputs)


def _fold(graph: Graph, instruction: Instruction) -> bool:
    """Compute an instruction on constants now; False if it is left for later."""
    if "empty" in instruction.target.__name__:
        return False
    if any(graph.values[number].nbytes > _LARGEST_CONSTANT for number in instruction.numbers):
        return False
    if isinstance(instruction.results, list) and any(isinstance(number, list) for number in instruction.results):
        return False

    def tensor(ref: Ref) -> Any:
        value = graph.values[ref.index]
        if value.tensor is None:
            return torch.empty_strided(value.shape, value.stride, dtype=value.dtype, device=value.device)
        return value.tensor

    args, kwargs = map_in(Ref, tensor, (instruction.args, instruction.kwargs))
    with torch.no_grad():
        out = instruction.target(*args, **kwargs)
    outs = [out] if isinstance(out, torch.Tensor) else out
    numbers = [instruction.results] if isinstance(instruction.results, int) else instruction.results
    for number, item in zip(numbers, outs, strict=True):
        if number is not None:
            graph.values[number] = replace(graph.values[number], kind="constant", tensor=item)
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
    return chosen if graph.values[chosen.index].layout == graph.values[instruction.results].layout else None


def _drop_dead(graph: Graph) -> None:
    """Remove instructions whose results nobody reads; writes to outside tensors and random draws stay."""
    values = graph.values
    outside = {value.storage for value in values if value.kind == "external"}
    wanted = {ref.index for ref in all_in(Ref, graph.outputs)}
    storages = {values[index].storage for index in wanted}
    kept: list[Instruction] = []
    for instruction in reversed(graph.instructions):
        written = graph.written_storages(instruction)
        is_wanted = (
            not (isinstance(instruction.target, torch._ops.OpOverload) or written)
            or is_random(instruction.target)
            or not (written.isdisjoint(outside) and written.isdisjoint(storages))
            or not wanted.isdisjoint(instruction.numbers)
        )
        if is_wanted:
            kept.append(instruction)
            wanted.update(ref.index for ref in instruction.refs)
            storages.update(values[ref.index].storage for ref in instruction.refs)
    graph.instructions = kept[::-1]


def _write_in_place(graph: Graph) -> None:
    """Turn `t = op(...); variable.copy_(t)` into `op(..., out=variable)`."""
    uses = Counter(ref.index for instruction in graph.instructions for ref in instruction.refs)
    uses.update(ref.index for ref in all_in(Ref, graph.outputs))
    made_at: dict[int, int] = {}
    last_write: dict[int, int] = {}
    dropped: set[int] = set()
    for position, instruction in enumerate(graph.instructions):
        if instruction.target is _aten.copy_.default and len(instruction.args) == 2:
            variable, source = instruction.args
            origin = made_at.get(source.index)
            if origin is not None and uses[source.index] == 1:
                merged = _merge(graph, origin, variable, instruction.results, last_write)
                if merged is not None:
                    graph.instructions[position] = merged
                    dropped.add(origin)
        elif isinstance(instruction.results, int) and is_pure(instruction.target):
            made_at[instruction.results] = position
        for storage in graph.written_storages(graph.instructions[position]):
            last_write[storage] = position
    graph.instructions = [i for position, i in enumerate(graph.instructions) if position not in dropped]


def _merge(graph: Graph, origin: int, variable: Ref, results: Any, last_write: dict[int, int]) -> Instruction | None:
    maker, goal = graph.instructions[origin], graph.values[variable.index]
    target = _out_variant(maker.target)
    if target is None or goal.layout != graph.values[maker.results].layout:
        return None
    for ref in maker.refs:
        storage = graph.values[ref.index].storage
        if last_write.get(storage, -1) > origin or (storage == goal.storage and ref != variable):
            return None
    return Instruction(target, maker.args, {**maker.kwargs, "out": variable}, results)


@functools.cache
def _out_variant(target: Any) -> Any:
    """The overload of a pointwise operation that takes the same arguments and writes to `out`, if there is one."""
    if torch.Tag.pointwise not in target.tags:
        return None
    wanted = [*_arguments(target), ("out", "Tensor")]
    overloads = (getattr(target.overloadpacket, name) for name in target.overloadpacket.overloads())
    return next((overload for overload in overloads if _arguments(overload) == wanted), None)


def _arguments(target: Any) -> list[tuple[str, str]]:
    return [(argument.name, str(argument.type)) for argument in target._schema.arguments]
