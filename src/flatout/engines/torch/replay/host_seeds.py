"""Seeds for CUDA graphs: the operations on the seed generators' states, repeated on the host.

Inside a CUDA graph nothing can be read back. The states of the seed generators change in the graph; a copy of them on
the host takes the same few operations before each launch, and seeds the generators that the graph is about to use.
"""

from __future__ import annotations

from dataclasses import replace

import torch

from flatout.base.errors import reason
from flatout.engines.torch.capture.recordable_keras import Reseed
from flatout.engines.torch.capture.recorder import CaptureFailed
from flatout.engines.torch.graph.codegen import Calls, late_step
from flatout.engines.torch.graph.step_graph import Graph, Instruction, is_random


class HostSeeds:
    """Seeds the generators of a step before each launch of it."""

    def __init__(self, graph: Graph, place: str) -> None:
        self._copies: list[tuple[torch.Tensor, torch.Tensor]] = []
        self.are_used = any(isinstance(instruction.target, Reseed) for instruction in graph.instructions)
        self._seed = late_step(self._on_host(graph, place), Calls()) if self.are_used else None

    def load(self) -> None:
        """Copy the states from the device; waits for it."""
        for outside, copy in self._copies:
            copy.copy_(outside.detach())

    def advance(self) -> None:
        """Seed the generators for the next launch."""
        if self._seed is not None:
            self._seed()

    def _on_host(self, graph: Graph, place: str) -> Graph:
        part = graph.copy()
        part.inputs, part.outputs = [], []
        part.instructions = _slice(graph, place)
        storages: set[int] = set()
        for index in {ref.index for instruction in part.instructions for ref in instruction.refs}:
            value = part.values[index]
            if value.tensor is None:
                continue
            copy = value.tensor.detach().to("cpu", copy=True)
            part.values[index] = replace(value, tensor=copy, device=copy.device)
            if value.kind == "external":
                if value.storage in storages:
                    raise CaptureFailed(reason("untraceable", place, "two views of one seed state are used"))
                storages.add(value.storage)
                self._copies.append((value.tensor, copy))
        return part


def _slice(graph: Graph, place: str) -> list[Instruction]:
    """The instructions that the seeds depend on, and those that change what they depend on."""
    storages: set[int] = set()
    kept: list[Instruction] = []
    values: set[int]
    # A state is written after it was read, which a walk from the end sees too late: walk until nothing is added.
    while True:
        count, kept, values = len(kept), [], set()
        for instruction in reversed(graph.instructions):
            if not (
                isinstance(instruction.target, Reseed)
                or graph.written_storages(instruction) & storages
                or values.intersection(instruction.numbers)
            ):
                continue
            refs = instruction.refs
            uses_batch = any(ref.index in graph.inputs for ref in refs)
            if uses_batch or is_random(instruction.target) or instruction.kwargs.get("device") is not None:
                raise CaptureFailed(reason("untraceable", place, "a seed depends on more than its generator's state"))
            values.update(ref.index for ref in refs)
            storages.update(graph.values[ref.index].storage for ref in refs)
            kept.append(instruction)
        if len(kept) == count:
            return kept[::-1]
