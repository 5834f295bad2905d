"""Variables whose updates are alike, end to end in one array while steps run, so that one kernel updates them all.

A GPU needs a microsecond or two for each kernel, however small its work is: a model with 26 embeddings spends half of
its step on their gradients, which are zeros and a sum into them for each. So embeddings, with all that is updated by
the same formula and what an optimizer keeps for it, are joined before the first step of a chunk and split after the
last, and the gradients are summed into the rows of all at once. What matrices are multiplied with stays by itself: it
would have to be copied from its place in each step.
"""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from .alike_updates import AlikeUpdates, Place, VariableCell
from .better_operations import BETTER, BETTER_WITHOUT_KERNELS
from .executables import primitives
from .flat_step import FlatOperation, FlatStep, flattened
from .gathered_step import gathered

# The value at a place.
_At = Callable[[int], Any]


def with_fewer_launches(jaxpr: Any, spec: tuple[Any, Any]) -> JoinedStep | None:
    """A step with fewer launches; None if there are none to spare, or parts of it shall be computed twice."""
    if not spares_launches() or primitives(jaxpr.jaxpr) & {"checkpoint", "remat", "remat2"}:
        return None
    return JoinedStep(flattened(jaxpr), spec).if_better()


def spares_launches() -> bool:
    """Whether a kernel's launch costs anything. (On a CPU there is none, and other sums would be rounded otherwise.)"""
    return bool(jax.default_backend() == "gpu")


class JoinedStep:
    """A step whose state has some variables joined.

    Args:
        flat: The step; its inputs are the state and the batch.
        spec: Of what it returns: its output and the state.

    Attributes:
        alike: How many variables, each with what is updated with it, are joined in each array.
        kernels: How many operations kernels of ours take the place of.
    """

    def __init__(self, flat: FlatStep, spec: tuple[Any, Any]):
        self._flat, self._structure = flat, jax.tree.structure(spec)
        self._instead = BETTER
        self.kernels = sum(other.is_kernel for other in flat.replaced(BETTER))
        leaves, self._state_structure = jax.tree.flatten(spec[1])
        self._count = len(leaves)
        self._updates = AlikeUpdates(flat, self._count)
        self._groups = self._updates.groups()
        self.alike = [len(group) for group in self._groups]
        self._joined = {number for group in self._groups for cell in group for number in cell.variables}

    def if_better(self) -> JoinedStep | None:
        """It, unless it is Keras' own step."""
        return self if self.alike or self._flat.replaced(self._instead) else None

    def without_kernels(self) -> JoinedStep | None:
        """The same without kernels of ours, if that is better than Keras' own step."""
        other = copy.copy(self)
        other._instead, other.kernels = BETTER_WITHOUT_KERNELS, 0
        return other.if_better()

    def around(self, loop: Callable[[Callable[..., Any]], Callable[..., Any]]) -> Callable[..., Any]:
        """A loop over steps on rows of placed data, whose state is Keras' before it and after it."""

        def step(state: Any, data: Any, numbers: Any) -> tuple[Any, Any]:
            return self(state, gathered(data, numbers))

        steps = loop(step)

        def run(state: Any, *arguments: Any) -> tuple[Any, Any]:
            outputs, after = steps(self.join(state), *arguments)
            return outputs, self.split(after)

        return run

    def join(self, state: Any) -> tuple[list[Any], list[Any]]:
        """The joined variables, role by role, and all others."""
        leaves = jax.tree.leaves(state)
        joined = [
            _end_to_end(leaves[cell.variables[role]] for cell in group)
            for group in self._groups
            for role in range(len(group[0].variables))
        ]
        return joined, [leaf for number, leaf in enumerate(leaves) if number not in self._joined]

    def split(self, state: tuple[list[Any], list[Any]]) -> Any:
        """The state as Keras has it."""
        joined, others = iter(state[0]), iter(state[1])
        leaves: list[Any] = [None] * self._count
        for group in self._groups:
            for role in range(len(group[0].variables)):
                parts = jnp.split(next(joined), np.cumsum([cell.size for cell in group])[:-1])
                for cell, part in zip(group, parts, strict=True):
                    leaves[cell.variables[role]] = part.reshape(cell.shape)
        found = [next(others) if number not in self._joined else leaf for number, leaf in enumerate(leaves)]
        return jax.tree.unflatten(self._state_structure, found)

    def __call__(self, state: tuple[list[Any], list[Any]], batch: Any) -> tuple[Any, Any]:
        """`(output, state)` of a step."""
        flat, before = self._flat, iter(state[0])
        at = flat.values([*jax.tree.leaves(self.split(state)), *jax.tree.leaves(batch)], flat.numbers, self._instead)
        output, others = jax.tree.unflatten(self._structure, [at(place) for place in flat.results])
        joined: list[Any] = []
        for group in self._groups:
            joined += self._updated(group, [next(before) for _ in group[0].variables], at)
        kept = [leaf for number, leaf in enumerate(jax.tree.leaves(others)) if number not in self._joined]
        return output, (joined, kept)

    def _updated(self, group: list[VariableCell], before: list[Any], at: _At) -> list[Any]:
        """The next values of joined variables."""
        first = group[0]
        others = range(len(before), len(first.arrays))
        arrays = [*before, *(self._gathered([cell.arrays[role] for cell in group], at) for role in others)]
        results: list[Any] = []

        def value(operand: Any) -> Any:
            kind, which = operand
            if kind == "scalar":
                return at(first.scalars[which])
            return arrays[which] if kind == "array" else results[which]

        for (primitive, _, operands), parameters in zip(first.formula.operations, first.parameters, strict=True):
            if primitive.name == "broadcast_in_dim":
                results.append(jnp.broadcast_to(value(operands[0]), arrays[0].shape))
            else:
                results.append(primitive.bind(*map(value, operands), **parameters))
        return [value(result) for result in first.formula.results]

    def _gathered(self, places: list[Place], at: _At) -> Any:
        """Arrays of all cells end to end; sums into rows that follow each other are one sum."""
        parts: list[Any] = []
        for kind, alike in itertools.groupby(places, self._updates.kind_of_sum):
            run = [*alike]
            parts += map(at, run) if kind is None else [_summed([*map(self._updates.maker, run)], at)]
        return _end_to_end(parts)


def _end_to_end(arrays: Any) -> Any:
    return jnp.concatenate([array.reshape(-1) for array in arrays])


def _summed(operations: list[FlatOperation], at: _At) -> Any:
    """Several sums of updates into rows of zeros, each into rows of its own of one array."""
    mode = operations[0].parameters["mode"]
    numbers, updates, below = [], [], 0
    for operation in operations:
        zeros, places, update = (at(place) for place in operation.operands)
        rows = zeros.shape[0]
        places = places.reshape(-1)
        if places.dtype.itemsize < 4:
            places = places.astype(np.int32)
        if mode == lax.GatherScatterMode.CLIP:
            places = jnp.clip(places, 0, rows - 1)
        place = places + np.asarray(below, places.dtype)
        if mode != lax.GatherScatterMode.CLIP:
            # What is beyond its own rows goes to nobody else's.
            nowhere = np.asarray(np.iinfo(places.dtype).max, places.dtype)
            place = jnp.where((places >= 0) & (places < rows), place, nowhere)
        numbers.append(place)
        updates.append(update.reshape(places.size, *zeros.shape[1:]))
        below += rows
    shape, is_inside = updates[0].shape, mode == lax.GatherScatterMode.CLIP
    of_rows = lax.ScatterDimensionNumbers(
        update_window_dims=tuple(range(1, len(shape))), inserted_window_dims=(0,), scatter_dims_to_operand_dims=(0,)
    )
    return lax.scatter_add(
        jnp.zeros((below, *shape[1:]), updates[0].dtype),
        jnp.concatenate(numbers)[:, None],
        jnp.concatenate(updates),
        of_rows,
        mode=lax.GatherScatterMode.PROMISE_IN_BOUNDS if is_inside else lax.GatherScatterMode.FILL_OR_DROP,
    )
