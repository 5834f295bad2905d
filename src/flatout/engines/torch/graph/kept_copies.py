"""Changes in place of which a copy was kept, made without the copy.

Autograd needs what an operation in place would destroy, and Keras' normalization is written in such operations: so
`kept = clone(x); x.mul_(y)` becomes `kept = x; changed = mul(x, y)`, with the same bits.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass, replace
from typing import Any

import torch

from .step_graph import Graph, Instruction, Ref, Value, like, map_in

_aten = torch.ops.aten


@dataclass(frozen=True)
class _Pair:
    """Where a copy is made of a value, and the operation that does apart what is done in place next."""

    copied_at: int
    apart: Any


def without_kept_copies(graph: Graph) -> Graph:
    pairs = _pairs(graph)
    graph, recorded = graph.copy(), graph.instructions
    graph.instructions = []
    copied_at = {pair.copied_at for pair in pairs.values()}
    storages = graph.new_storages()
    # Which numbers, and which memory, are what was another one when it was recorded.
    now: dict[int, int] = {}
    moved: dict[int, int] = {}
    for place, recorded_one in enumerate(recorded):
        instruction = recorded_one.with_refs(lambda ref: Ref(now.get(ref.index, ref.index)))
        if place in copied_at:
            now[instruction.results] = instruction.args[0].index
            continue
        if place in pairs:
            changed = graph.values[recorded_one.results]
            moved[changed.storage] = next(storages)
            now[recorded_one.results] = len(graph.values)
            graph.values.append(replace(changed, offset=0))
            instruction = replace(instruction, target=pairs[place].apart)
        results = map_in(int, lambda number: now.get(number, number), instruction.results)
        for number in replace(instruction, results=results).numbers:
            value = graph.values[number]
            graph.values[number] = replace(value, storage=moved.get(value.storage, value.storage))
        graph.instructions.append(replace(instruction, results=results))
    graph.outputs = map_in(Ref, lambda ref: Ref(now.get(ref.index, ref.index)), graph.outputs)
    return graph


def _pairs(graph: Graph) -> dict[int, _Pair]:
    """By the places of the changes."""
    values, pairs = graph.values, {}
    copies: dict[int, int] = {}
    lives = _Lives(graph)
    for place, instruction in enumerate(graph.instructions):
        for storage in graph.written_storages(instruction):
            copied_at = copies.pop(storage, None)
            if copied_at is None or (apart := _apart(graph, instruction)) is None:
                continue
            source = graph.instructions[copied_at].args[0].index
            if instruction.results == source and lives.is_alone(source, place):
                pairs[place] = _Pair(copied_at, apart)
        if instruction.target is _aten.clone.default:
            source, copy = values[instruction.args[0].index], values[instruction.results]
            if source.kind == "computed" and source.layout == copy.layout and not lives.is_ever_written(copy):
                copies.setdefault(source.storage, place)
    return pairs


class _Lives:
    """From where to where the values of a graph are in use."""

    def __init__(self, graph: Graph):
        end = len(graph.instructions)
        self._values = graph.values
        self._made: dict[int, int] = {}
        self._used = {ref.index: end for ref in graph.outputs if isinstance(ref, Ref)}
        self._sharing: dict[int, list[int]] = {}
        self._written = graph.written_storages(*graph.instructions)
        for index, value in enumerate(graph.values):
            self._sharing.setdefault(value.storage, []).append(index)
        for place, instruction in enumerate(graph.instructions):
            for number in instruction.numbers:
                self._made.setdefault(number, place)
            for ref in instruction.refs:
                self._used[ref.index] = max(place, self._used.get(ref.index, 0))

    def is_ever_written(self, value: Value) -> bool:
        return value.storage in self._written

    def is_alone(self, index: int, place: int) -> bool:
        """Whether nothing else that is in its memory before a place is used from there on."""
        others = (other for other in self._sharing[self._values[index].storage] if other != index)
        return all(self._made.get(one, -1) > place or self._used.get(one, -1) < place for one in others)


def _apart(graph: Graph, instruction: Instruction) -> Any:
    """The operation that makes anew what an instruction changes in place; None if it would lie otherwise."""
    target = instruction.target
    if not isinstance(target, torch._ops.OpOverload) or (apart := _apart_from(target)) is None:
        return None
    args, kwargs = map_in(Ref, lambda ref: like(graph.values[ref.index]), (instruction.args, instruction.kwargs))
    made, changed = apart(*args, **kwargs), graph.values[instruction.results]
    same = (made.shape, made.stride(), made.dtype) == (changed.shape, changed.stride, changed.dtype)
    return apart if same else None


@functools.cache
def _apart_from(target: Any) -> Any:
    """The overload of a pointwise operation that takes the same arguments and changes none."""
    name = target._schema.name.partition("::")[2]
    if torch.Tag.pointwise not in target.tags or not name.endswith("_"):
        return None
    packet = getattr(_aten, name[:-1], None)
    overload = getattr(packet, target._overloadname, None)
    same = overload is not None and [one.name for one in overload._schema.arguments] == [
        one.name for one in target._schema.arguments
    ]
    return overload if same else None
