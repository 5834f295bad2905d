"""Fewer copies of tensors in a recorded step, with the same bits.

Keras' images are channels last; it has torch pool them channels first, and convolve them channels last again.
Operations that give the same bits in any layout take a tensor as it lies; all others are given the layout that was
recorded.
"""

from __future__ import annotations

from dataclasses import replace

import torch

from .step_graph import Graph, Instruction, Ref, Value, like, map_in, written_arguments

_aten = torch.ops.aten
_VIEWS = {"permute", "transpose", "t", "squeeze", "unsqueeze", "view", "_unsafe_view", "expand", "slice", "select"}
# Each number of the result is computed by itself, and rounded correctly, whatever the order.
_EXACT = {"add", "sub", "mul", "div", "neg", "relu", "threshold_backward", "where", "ge", "gt", "le", "lt", "eq", "ne"}
_POOLING = {"max_pool2d_with_indices", "max_pool2d_with_indices_backward"}
_IN_PLACE = {"copy_", *(f"{name}_" for name in _EXACT)}


def with_fewer_copies(graph: Graph) -> Graph:
    """The graph without copies that only lie otherwise, if that spares copies in all."""
    relaid = _Relaid(graph)
    try:
        relaid.walk()
    except _NoLayout:
        return graph
    return relaid.graph if _copied_bytes(relaid.graph) < _copied_bytes(graph) else graph


def _copied_bytes(graph: Graph) -> int:
    return sum(graph.values[one.results].nbytes for one in graph.instructions if one.target is _aten.clone.default)


class _NoLayout(Exception):
    """A tensor has to lie in a way that no copy can be asked for."""


class _Relaid:
    """A graph that is made anew, one instruction after the other; `graph` is what there is of it."""

    def __init__(self, graph: Graph):
        self._recorded = graph.instructions
        self.graph = graph.copy()
        self.graph.instructions = []
        written = graph.written_storages(*graph.instructions)
        self._changing = {index for index, value in enumerate(graph.values) if value.storage in written}
        self._storages = graph.new_storages()
        # The number of what is there in the place of a recorded tensor: the same numbers, lying otherwise.
        self._instead: dict[int, int] = {}
        self._is_copied: set[int] = set()

    def walk(self) -> None:
        for instruction in self._recorded:
            if instruction.target is _aten.clone.default and self._is_steady(instruction):
                self._instead[instruction.results] = self._there(instruction.refs[0]).index
            elif not self._instead.keys() & {ref.index for ref in instruction.refs}:
                self.graph.instructions.append(instruction)
            elif not self._runs_on_what_is_there(instruction):
                self.graph.instructions.append(instruction.with_refs(self._as_recorded))
        self.graph.outputs = map_in(Ref, self._as_recorded, self.graph.outputs)

    def _is_steady(self, instruction: Instruction) -> bool:
        """Whether nobody ever writes to what it takes and makes."""
        return self._changing.isdisjoint((*(ref.index for ref in instruction.refs), *instruction.numbers))

    def _there(self, ref: Ref) -> Ref:
        return Ref(self._instead.get(ref.index, ref.index))

    def _runs_on_what_is_there(self, instruction: Instruction) -> bool:
        """Append an instruction that takes tensors as they lie; False if it must have them as they were."""
        target, values = instruction.target, self.graph.values
        if not isinstance(target, torch._ops.OpOverload):
            return False
        name = target._schema.name.partition("::")[2]
        moved = instruction.with_refs(self._there)
        if name in _IN_PLACE:
            self.graph.instructions.append(moved)
            return True
        if name not in _EXACT | _POOLING | _VIEWS or written_arguments(target) or not self._is_steady(instruction):
            return False
        args, kwargs = map_in(Ref, lambda ref: like(values[ref.index]), (moved.args, moved.kwargs))
        try:
            made = target(*args, **kwargs)
        except RuntimeError:  # A view that there is of the recorded layout alone.
            return False
        source = values[moved.refs[0].index]
        for number, tensor in zip(instruction.numbers, [made] if isinstance(made, torch.Tensor) else made, strict=True):
            storage = source.storage if name in _VIEWS else next(self._storages)
            offset = tensor.storage_offset() + (source.offset if name in _VIEWS else 0)
            place = (storage, tuple(tensor.shape), tensor.stride(), offset)
            self._instead[number] = len(values)
            values.append(Value("computed", *place, tensor.dtype, values[number].device))
        results = map_in(int, self._instead.__getitem__, moved.results)
        self.graph.instructions.append(Instruction(target, moved.args, moved.kwargs, results))
        return True

    def _as_recorded(self, ref: Ref) -> Ref:
        """The number of a tensor that lies as it was recorded, which is copied for that if it must be."""
        there, wanted = self._there(ref), self.graph.values[ref.index]
        if self.graph.values[there.index].layout == wanted.layout:
            return there
        if ref.index not in self._is_copied:
            self._is_copied.add(ref.index)
            self.graph.values[ref.index] = replace(wanted, kind="computed", storage=next(self._storages), offset=0)
            copy = Instruction(_aten.clone.default, (there,), {"memory_format": _memory_format(wanted)}, ref.index)
            self.graph.instructions.append(copy)
        return ref


def _memory_format(wanted: Value) -> torch.memory_format:
    """What has `clone` lay a tensor so."""
    last = {4: torch.channels_last, 5: torch.channels_last_3d}.get(len(wanted.shape), torch.contiguous_format)
    for one in (torch.contiguous_format, last):
        if torch.empty(wanted.shape, device="meta", memory_format=one).stride() == wanted.stride:
            return one
    raise _NoLayout
