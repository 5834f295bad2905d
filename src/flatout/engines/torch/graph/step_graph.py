"""A captured step as data: ATen operations in order, over numbered tensors.

The graph is not functional: variables are updated in place, as Keras does it. Every value knows the storage that it
lives in, so that the passes in `optimize.py` can tell what a write touches.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import torch


@dataclass(frozen=True, slots=True)
class Ref:
    """The value with this number."""

    index: int


@dataclass(frozen=True, slots=True)
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

    @property
    def layout(self) -> tuple[Any, ...]:
        return self.shape, self.stride, self.dtype, self.device

    @property
    def nbytes(self) -> int:
        return math.prod(self.shape) * self.dtype.itemsize


@dataclass(frozen=True, slots=True)
class Instruction:
    """One call: `results = target(*args, **kwargs)`; `results` holds value numbers, or None."""

    target: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    results: Any

    @property
    def refs(self) -> list[Ref]:
        """What it takes."""
        return all_in(Ref, (self.args, self.kwargs))

    @property
    def written(self) -> list[Ref]:
        """What it writes to, of what it takes."""
        return all_in(Ref, written_among(self.target, self.args, self.kwargs))

    @property
    def numbers(self) -> list[int]:
        """The numbers of the values that it returns, also of lists among them."""
        return all_in(int, self.results)

    def with_refs(self, function: Callable[[Ref], Ref]) -> Instruction:
        args, kwargs = map_in(Ref, function, (self.args, self.kwargs))
        return Instruction(self.target, args, kwargs, self.results)


@dataclass(slots=True)
class Graph:
    """The step: its values, instructions, inputs and outputs (a flat list of `Ref`s and plain objects)."""

    values: list[Value] = field(default_factory=list)
    instructions: list[Instruction] = field(default_factory=list)
    inputs: list[int] = field(default_factory=list)
    outputs: list[Any] = field(default_factory=list)
    output_structure: Any = None

    def add_value(self, tensor: torch.Tensor, kind: str, storage: int) -> int:
        held = tensor if kind in ("external", "constant") else None
        place = (tuple(tensor.shape), tensor.stride(), tensor.storage_offset(), tensor.dtype, tensor.device)
        self.values.append(Value(kind, storage, *place, held))
        return len(self.values) - 1

    def written_storages(self, *instructions: Instruction) -> set[int]:
        return {self.values[ref.index].storage for instruction in instructions for ref in instruction.written}

    @property
    def draws(self) -> bool:
        """Whether it draws from the generator that all of the process shares."""
        return any(is_random(one.target) and one.kwargs.get("generator") is None for one in self.instructions)

    @property
    def outside_tensors(self) -> list[torch.Tensor]:
        return [value.tensor for value in self.values if value.kind == "external" and value.tensor is not None]

    def new_storages(self) -> Iterator[int]:
        """Numbers for memory that is in no use."""
        return itertools.count(1 + max((value.storage for value in self.values), default=0))

    def copy(self) -> Graph:
        """A copy whose instruction and value lists may be changed."""
        return replace(self, values=list(self.values), instructions=list(self.instructions))


def like(value: Value) -> torch.Tensor:
    """A tensor that lies like a value, and holds nothing."""
    return torch.empty_strided(value.shape, value.stride, dtype=value.dtype, device="meta")


def map_in(kind: type, function: Callable[[Any], Any], structure: Any) -> Any:
    """Apply a function to everything of a kind in nested lists, tuples and dicts."""
    if isinstance(structure, kind):
        return function(structure)
    container = type(structure)
    if container is list or container is tuple:
        return container([map_in(kind, function, item) for item in structure])
    if container is dict:
        return {key: map_in(kind, function, item) for key, item in structure.items()}
    return structure


def all_in(kind: type, structure: Any) -> list[Any]:
    """Everything of a kind in nested lists, tuples and dicts, in order."""
    found, waiting = [], [structure]
    while waiting:
        item = waiting.pop()
        if isinstance(item, kind):
            found.append(item)
        elif isinstance(item, (list, tuple)):
            waiting.extend(reversed(item))
        elif isinstance(item, dict):
            waiting.extend(reversed(item.values()))
    return found


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


@functools.cache
def is_random(target: Any) -> bool:
    """Whether an operation draws random numbers."""
    return isinstance(target, torch._ops.OpOverload) and torch.Tag.nondeterministic_seeded in target.tags


@functools.cache
def is_pure(target: Any) -> bool:
    """Whether an operation only computes its results from its arguments."""
    return isinstance(target, torch._ops.OpOverload) and not written_arguments(target) and not is_random(target)
