"""A captured step as data: ATen operations in order, over numbered tensors.

The graph is not functional: variables are updated in place, as Keras does it. Every value knows the
storage that it lives in, so that the passes in `torch_optimize.py` can tell what a write touches.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch


@dataclass(frozen=True, slots=True)
class Ref:
    """The value with this number."""

    index: int


@dataclass(slots=True)
class Value:
    """What is known of a tensor in the graph.

    Attributes:
        kind: "input" (a leaf of the batch), "external" (lives outside: a variable), "constant" or "computed".
        storage: Number of the memory that it is in; views share it.
        tensor: The tensor itself, for "external" and "constant".
    """

    kind: str
    storage: int
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    offset: int
    dtype: torch.dtype
    device: torch.device
    tensor: torch.Tensor | None = None

    def has_layout_of(self, other: Value) -> bool:
        return (self.shape, self.stride, self.dtype, self.device) == (
            other.shape,
            other.stride,
            other.dtype,
            other.device,
        )


@dataclass(slots=True)
class Instruction:
    """One call: `results = target(*args, **kwargs)`; `results` holds value numbers, or None."""

    target: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    results: Any


@dataclass(slots=True)
class Graph:
    """The step: its values, instructions, inputs and outputs (a flat list of `Ref`s and plain objects)."""

    values: list[Value] = field(default_factory=list)
    instructions: list[Instruction] = field(default_factory=list)
    inputs: list[int] = field(default_factory=list)
    outputs: list[Any] = field(default_factory=list)
    output_structure: Any = None

    def add_value(self, tensor: torch.Tensor, kind: str, storage: int, keep: bool = False) -> int:
        self.values.append(
            Value(
                kind,
                storage,
                tuple(tensor.shape),
                tuple(tensor.stride()),
                tensor.storage_offset(),
                tensor.dtype,
                tensor.device,
                tensor if keep else None,
            )
        )
        return len(self.values) - 1

    def written_externals(self) -> list[torch.Tensor]:
        """The tensors from outside (or inputs' memory) that the step changes."""
        written = {storage for ins in self.instructions for storage in self.written_storages(ins)}
        return [v.tensor for v in self.values if v.kind == "external" and v.storage in written and v.tensor is not None]

    def written_storages(self, instruction: Instruction) -> set[int]:
        return {self.values[ref.index].storage for ref in written_refs(instruction)}

    def storages_of(self, instruction: Instruction) -> set[int]:
        """The memory that an instruction takes as arguments."""
        return {self.values[ref.index].storage for ref in refs_in((instruction.args, instruction.kwargs))}

    def copy(self) -> Graph:
        """A copy whose instruction and value lists may be changed."""
        return Graph(
            list(self.values),
            [Instruction(i.target, i.args, i.kwargs, i.results) for i in self.instructions],
            list(self.inputs),
            list(self.outputs),
            self.output_structure,
        )


def map_refs(function: Callable[[Ref], Any], structure: Any) -> Any:
    """Apply a function to every `Ref` in nested lists, tuples and dicts."""
    kind = type(structure)
    if kind is Ref:
        return function(structure)
    if kind is list:
        return [map_refs(function, item) for item in structure]
    if kind is tuple:
        return tuple([map_refs(function, item) for item in structure])
    if kind is dict:
        return {key: map_refs(function, item) for key, item in structure.items()} if structure else structure
    return structure


def refs_in(structure: Any) -> list[Ref]:
    """Every `Ref` in nested lists, tuples and dicts."""
    found: list[Ref] = []
    _collect(structure, found)
    return found


def _collect(structure: Any, found: list[Ref]) -> None:
    kind = type(structure)
    if kind is Ref:
        found.append(structure)
    elif kind is list or kind is tuple:
        for item in structure:
            _collect(item, found)
    elif kind is dict:
        for item in structure.values():
            _collect(item, found)


def results_of(instruction: Instruction) -> Iterator[int]:
    """The numbers of the values that an instruction returns, also of lists among them."""
    yield from _numbers_in(instruction.results)


def _numbers_in(results: Any) -> Iterator[int]:
    if isinstance(results, int):
        yield results
    elif isinstance(results, (list, tuple)):
        for result in results:
            yield from _numbers_in(result)


@functools.cache
def written_arguments(target: Any) -> tuple[tuple[int, str, bool], ...]:
    """Position, name and keyword-onlyness of the arguments that an operation writes to."""
    if not isinstance(target, torch._ops.OpOverload):
        return getattr(target, "written_arguments", ())
    return tuple(
        (position, argument.name, argument.kwarg_only)
        for position, argument in enumerate(target._schema.arguments)
        if argument.alias_info is not None and argument.alias_info.is_write
    )


def written_among(target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any]:
    """The arguments of a call that it writes to."""
    written = []
    for position, name, keyword_only in written_arguments(target):
        if name in kwargs:
            written.append(kwargs[name])
        elif not keyword_only and position < len(args):
            written.append(args[position])
    return written


def written_refs(instruction: Instruction) -> list[Ref]:
    if not written_arguments(instruction.target):
        return []
    return refs_in(written_among(instruction.target, instruction.args, instruction.kwargs))


@functools.cache
def is_random(target: Any) -> bool:
    """Whether an operation draws random numbers."""
    return isinstance(target, torch._ops.OpOverload) and torch.Tag.nondeterministic_seeded in target.tags


@functools.cache
def is_pure(target: Any) -> bool:
    """Whether an operation only computes its results from its arguments."""
    return isinstance(target, torch._ops.OpOverload) and not written_arguments(target) and not is_random(target)
