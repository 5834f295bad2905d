"""A recorded step in stages: calls that stay as they are, and between them parts that a compiler may have whole.

A compiler must not see a draw of random numbers, whose generator and order are stock Keras', nor a call into cuDNN's
recurrent layers or fused attention, which it could not better. Such a call runs as soon as it may, which for most
draws is before everything else: they need nothing but a shape.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import torch

from flatout.engines.torch.capture.recorder import add_scaled_
from flatout.engines.torch.graph.step_graph import (
    Graph,
    Instruction,
    Ref,
    all_in,
    is_pure,
    is_random,
    written_arguments,
)

_aten = torch.ops.aten
_LARGEST_ONES = 64 * 2**20
_EMPTY = {"empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided"}
_KERNELS_OF_THEIR_OWN = ("_cudnn_rnn", "_scaled_dot_product", "_thnn_fused", "miopen_rnn", "_efficient_attention")


@dataclass
class Stage:
    """Calls that stay as they are, in their order, and what may be compiled after them."""

    as_they_are: list[Instruction] = field(default_factory=list)
    compiled: list[Instruction] = field(default_factory=list)


def in_stages(graph: Graph) -> list[Stage]:
    """The instructions of a graph, each as early as what it needs allows; draws keep their order."""
    instructions = [_without_template(graph, instruction) for instruction in graph.instructions]
    drawn_into = graph.written_storages(*filter(_stays, instructions))
    stages: list[Stage] = []
    placing = _Placing()
    # Where the memory of a tensor was written last and where it was used last: at which stage, and whether in what is
    # compiled of it.
    written: dict[int, tuple[int, bool]] = {}
    used: dict[int, tuple[int, bool]] = {}
    last_kept = 0
    for instruction in instructions:
        if _is_view(graph, instruction):
            placing.views.update((number, instruction) for number in instruction.numbers)
            continue
        reads = {graph.values[ref.index].storage for ref in instruction.refs}
        writes = graph.written_storages(instruction)
        needed = [written[one] for one in reads if one in written] + [used[one] for one in writes if one in used]
        stage, is_in_compiled = max(needed, default=(0, False))
        makes = {graph.values[number].storage for number in instruction.numbers}
        stays = _stays(instruction) or (_is_empty(instruction.target) and not makes.isdisjoint(drawn_into))
        if stays:
            stage = last_kept = max(last_kept, stage + is_in_compiled)
        while len(stages) <= stage:
            stages.append(Stage())
        placing.place(instruction, stages[stage].as_they_are if stays else stages[stage].compiled)
        at = (stage, not stays)
        for storage in writes | makes:
            written[storage] = max(written.get(storage, at), at)
        for storage in reads | writes | makes:
            used[storage] = max(used.get(storage, at), at)
    if stages:
        placing.place_views(all_in(Ref, graph.outputs), stages[-1].compiled)
    return stages


def with_early_draws(graph: Graph) -> Graph:
    """Draw for dropout before the values are there that are dropped: of ones, with which those are multiplied.

    The bits are the same in single precision, and a part that is compiled does not end there.
    """
    graph = graph.copy()
    storages = graph.new_storages()
    ones: dict[Any, int] = {}
    instructions, graph.instructions = graph.instructions, []
    for instruction in instructions:
        if instruction.target is not _aten.native_dropout.default or not _is_plain(graph, instruction.args[0]):
            graph.instructions.append(instruction)
            continue
        (values, *rest), (out, mask) = instruction.args, instruction.results
        layout = graph.values[values.index].layout
        if layout not in ones:
            shape, stride, dtype, device = layout
            tensor = torch.empty_strided(shape, stride, dtype=dtype, device=device).fill_(1)
            ones[layout] = graph.add_value(tensor, "constant", next(storages))
        graph.values.append(replace(graph.values[out], storage=next(storages)))
        scales = len(graph.values) - 1
        graph.instructions += [
            Instruction(instruction.target, (Ref(ones[layout]), *rest), instruction.kwargs, [scales, mask]),
            Instruction(_aten.mul.Tensor, (values, Ref(scales)), {}, out),
        ]
    return graph


def with_updates_as_operations(graph: Graph) -> Graph:
    """Have ATen's own operations add gradients times a rate that is a tensor, as Keras' SGD does."""
    graph = graph.copy()
    storages = graph.new_storages()
    instructions, graph.instructions = graph.instructions, []
    for instruction in instructions:
        if instruction.target is not add_scaled_:
            graph.instructions.append(instruction)
            continue
        variables, updates, rate = instruction.args
        scaled = list(range(len(graph.values), len(graph.values) + len(updates)))
        graph.values += [replace(graph.values[one.index], kind="computed", storage=next(storages)) for one in updates]
        graph.instructions += [
            Instruction(_aten._foreach_mul.Tensor, (updates, rate), {}, scaled),
            Instruction(_aten._foreach_add_.List, (variables, list(map(Ref, scaled))), {}, None),
        ]
    return graph


def _is_plain(graph: Graph, ref: Ref) -> bool:
    """Whether dropout takes the random numbers for it that it takes for ones, and rounds as a product does."""
    value = graph.values[ref.index]
    is_aligned = value.offset * value.dtype.itemsize % 16 == 0
    return value.dtype == torch.float32 and is_aligned and value.nbytes <= _LARGEST_ONES


class _Placing:
    """Puts instructions in lists, with the views that they need.

    A view costs nothing: each part makes its own, so that no two tensors that pass from part to part share memory.
    """

    def __init__(self) -> None:
        self.views: dict[int, Instruction] = {}
        self._placed: set[tuple[int, int]] = set()

    def place(self, instruction: Instruction, part: list[Instruction]) -> None:
        self.place_views(instruction.refs, part)
        part.append(instruction)

    def place_views(self, refs: list[Ref], part: list[Instruction]) -> None:
        for ref in refs:
            if (view := self.views.get(ref.index)) is not None and (id(part), ref.index) not in self._placed:
                self._placed.update((id(part), number) for number in view.numbers)
                self.place(view, part)


def _is_view(graph: Graph, instruction: Instruction) -> bool:
    if not is_pure(instruction.target) or not instruction.refs or not instruction.numbers:
        return False
    storage = graph.values[instruction.refs[0].index].storage
    return all(graph.values[number].storage == storage for number in instruction.numbers)


def _stays(instruction: Instruction) -> bool:
    target = instruction.target
    if not isinstance(target, torch._ops.OpOverload) or is_random(target):
        return True
    return target._schema.name.partition("::")[2].startswith(_KERNELS_OF_THEIR_OWN)


def _is_empty(target: object) -> bool:
    return isinstance(target, torch._ops.OpOverload) and target._schema.name.partition("::")[2] in _EMPTY


def _without_template(graph: Graph, instruction: Instruction) -> Instruction:
    """Memory without contents needs no other tensor: a draw into it need not wait for one."""
    if not _is_empty(instruction.target) or written_arguments(instruction.target):
        return instruction
    value = graph.values[instruction.results]
    layout = {"dtype": value.dtype, "device": value.device}
    return Instruction(_aten.empty_strided.default, (value.shape, value.stride), layout, instruction.results)
