"""The gradients of several embeddings as one: memory is zeroed once, and one kernel adds to it, not two for each table.

A model of tabular data has dozens of tables, and a kernel for each takes longer to launch than to run.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import torch

from flatout.engines.torch.graph.step_graph import Graph, Instruction, Ref, Value, is_pure

_aten = torch.ops.aten
# Of all tables: their numbers must fit an index.
_MOST_ROWS = 2**31 - 1
# Gradients of larger outputs take longer to copy side by side than a kernel to launch.
_LARGEST = 2**20


def with_joined_scatters(graph: Graph) -> Graph:
    """Compute gradients of embeddings together, as late as somebody needs one of them."""
    graph = graph.copy()
    written = graph.written_storages(*graph.instructions)
    instructions, graph.instructions = graph.instructions, []
    waiting: dict[Any, list[Instruction]] = {}
    for instruction in instructions:
        if (kind := _kind(graph, instruction, written)) is not None:
            waiting.setdefault(kind, []).append(instruction)
            continue
        awaited = {number for members in waiting.values() for member in members for number in member.numbers}
        if not is_pure(instruction.target) or not awaited.isdisjoint(ref.index for ref in instruction.refs):
            _place(graph, waiting)
        graph.instructions.append(instruction)
    _place(graph, waiting)
    return graph


def _kind(graph: Graph, instruction: Instruction, written: set[int]) -> Any:
    """What is common to gradients that are computed together; None for all else."""
    if instruction.target is not _aten.embedding_dense_backward.default:
        return None
    gradient, index, _, padding, is_scaled = instruction.args
    outputs, result = graph.values[gradient.index], graph.values[instruction.results]
    if padding >= 0 or is_scaled or outputs.dtype != torch.float32 or outputs.nbytes > _LARGEST:
        return None
    # Who writes to a gradient finds it in memory of its own.
    if result.storage in written:
        return None
    return result.shape[1:], result.device, graph.values[index.index].dtype


def _place(graph: Graph, waiting: dict[Any, list[Instruction]]) -> None:
    for members in waiting.values():
        if len(members) > 1 and sum(member.args[2] for member in members) <= _MOST_ROWS:
            _add_joined(graph, members)
        else:
            graph.instructions += members
    waiting.clear()


def _add_joined(graph: Graph, members: list[Instruction]) -> None:
    """One sum into the rows of all tables; what the members leave are parts of it."""
    values, storages = graph.values, graph.new_storages()

    def call(target: Any, *args: Any, like: Value, shape: tuple[int, ...], storage: int | None = None) -> Ref:
        strides = tuple(math.prod(shape[axis + 1 :]) for axis in range(len(shape)))
        place = next(storages) if storage is None else storage
        values.append(Value("computed", place, shape, strides, 0, like.dtype, like.device))
        keywords = {"dtype": like.dtype, "device": like.device} if target is _aten.zeros.default else {}
        graph.instructions.append(Instruction(target, args, keywords, len(values) - 1))
        return Ref(len(values) - 1)

    def flat(ref: Ref, shape: tuple[int, ...]) -> Ref:
        value = values[ref.index]
        if value.shape == shape:
            return ref
        return call(_aten.reshape.default, ref, list(shape), like=value, shape=shape, storage=value.storage)

    like = values[members[0].results]
    width = like.shape[1]
    gradients, indices, first_rows, rows = [], [], [], 0
    for member in members:
        gradient, index, count = member.args[:3]
        entries = math.prod(values[index.index].shape)
        gradients.append(flat(gradient, (entries, width)))
        numbers = flat(index, (entries,))
        indices.append(call(_aten.add.Scalar, numbers, rows, like=values[index.index], shape=(entries,)))
        first_rows.append(rows)
        rows += count
    entries = sum(values[one.index].shape[0] for one in indices)
    index = call(_aten.cat.default, indices, like=values[indices[0].index], shape=(entries,))
    gradient = call(_aten.cat.default, gradients, like=values[gradients[0].index], shape=(entries, width))
    zeros = call(_aten.zeros.default, [rows, width], like=like, shape=(rows, width))
    put = _aten._unsafe_index_put.default
    sums = call(put, zeros, [index], gradient, True, like=like, shape=(rows, width))
    for member, first in zip(members, first_rows, strict=True):
        part = Instruction(_aten.slice.Tensor, (sums, 0, first, first + member.args[2]), {}, member.results)
        graph.instructions.append(part)
        own, shared = values[member.results].storage, values[sums.index].storage
        for number, value in enumerate(values):
            if value.storage == own:
                values[number] = replace(value, storage=shared, offset=value.offset + first * width)
