"""Variables whose updates are alike, end to end in one array while steps run, so that one kernel updates them all.

An optimizer changes each variable by itself, by the same formula. A GPU needs a microsecond or two for each, however
small it is: a model with 26 embeddings spends half of its step on that. So biases, what normalizations learn and keep,
and embeddings, with all that an optimizer keeps for them, are joined before the first step of a chunk and split after
the last. Gradients of embeddings, which are sums into rows, are summed into the rows of all at once. What matrices are
multiplied with stays by itself: it would have to be copied from its place in each step.
"""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from .executables import primitives
from .flat_step import BETTER, FlatOperation, FlatStep
from .gathered_step import gathered

# Each number of the result depends on the numbers at its own place alone.
_ELEMENTWISE = frozenset(
    (
        *("add", "add_any", "sub", "mul", "div", "rem", "pow", "max", "min", "neg", "sign", "abs", "square"),
        *("integer_pow", "sqrt", "rsqrt", "exp", "exp2", "expm1", "log", "log1p", "tanh", "logistic", "sin", "cos"),
        *("eq", "ne", "lt", "le", "gt", "ge", "and", "or", "not", "select_n", "clamp", "is_finite", "round", "floor"),
        *("ceil", "convert_element_type", "broadcast_in_dim", "copy", "copy_p", "stop_gradient"),
    )
)
# What only places numbers otherwise.
_LAYOUT = frozenset(("reshape", "transpose", "squeeze", "expand_dims", "convert_element_type", "copy", "copy_p"))
# What takes an array from memory of its own.
_TAKES_WHOLE = frozenset(
    ("dot_general", "conv_general_dilated", "while", "scan", "cond", "pallas_call", "custom_call", "ffi_call", "rnn")
)
# Where there are fewer alike, what joins them is no fewer launches. (Counted in XLA's text for an H200.)
_LEAST_ALIKE = 4
# Above this, the launch is little of what an update costs, and what is joined takes memory twice for a moment.
_MOST_NUMBERS = 2**17

# What becomes of updates to rows that are not there: all that is known here.
_MODES = (
    lax.GatherScatterMode.CLIP,
    lax.GatherScatterMode.FILL_OR_DROP,
    lax.GatherScatterMode.PROMISE_IN_BOUNDS,
)

_Place = int
# The value at a place.
_At = Callable[[int], Any]


def can_be_joined(jaxpr: Any) -> bool:
    """Whether it helps to take a step as one list of operations, and may be: not if parts shall be computed twice."""
    return spares_launches() and not primitives(jaxpr.jaxpr) & {"checkpoint", "remat", "remat2"}


def spares_launches() -> bool:
    """Whether a kernel's launch costs anything. (On a CPU there is none, and other sums would be rounded otherwise.)"""
    return bool(jax.default_backend() != "cpu")


@dataclass(frozen=True)
class _Formula:
    """How some variables of one shape come to their next values, whatever that shape is.

    Attributes:
        operations: Primitives, parameters and operands: `("array", n)`, `("scalar", key)` or `("result", n)`.
        results: Where the next value of each variable is.
    """

    operations: tuple[tuple[Any, str, tuple[Any, ...]], ...]
    results: tuple[Any, ...]
    dtypes: tuple[Any, ...]


@dataclass
class _Cell:
    """Variables of one shape that are updated from each other, as a weight and its two moments.

    Attributes:
        variables: Their numbers within the state.
        arrays: Places of all arrays that the formula takes, the variables among them.
        scalars: A place for each scalar of the formula.
        parameters: Of the formula's operations.
    """

    variables: tuple[int, ...]
    shape: tuple[int, ...]
    formula: _Formula
    arrays: tuple[_Place, ...]
    scalars: dict[Any, _Place]
    parameters: list[dict[str, Any]] = field(repr=False)

    @property
    def size(self) -> int:
        return math.prod(self.shape)


class JoinedStep:
    """A step whose state has some variables joined.

    Args:
        flat: The step; its inputs are the state and the batch.
        spec: Of what it returns: its output and the state.

    Attributes:
        alike: How many variables, each with what is updated with it, are joined in each array.
    """

    def __init__(self, flat: FlatStep, spec: tuple[Any, Any]):
        self._flat, self._structure = flat, jax.tree.structure(spec)
        leaves, self._state_structure = jax.tree.flatten(spec[1])
        self._count = len(leaves)
        self._reading = _Reading(flat, self._count)
        self._groups = self._reading.groups()
        self.alike = [len(group) for group in self._groups]
        self._joined = {number for group in self._groups for cell in group for number in cell.variables}

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
        at = flat.values([*jax.tree.leaves(self.split(state)), *jax.tree.leaves(batch)], flat.numbers, BETTER)
        output, others = jax.tree.unflatten(self._structure, [at(place) for place in flat.results])
        joined: list[Any] = []
        for group in self._groups:
            joined += self._updated(group, [next(before) for _ in group[0].variables], at)
        kept = [leaf for number, leaf in enumerate(jax.tree.leaves(others)) if number not in self._joined]
        return output, (joined, kept)

    def _updated(self, group: list[_Cell], before: list[Any], at: _At) -> list[Any]:
        """The next values of joined variables."""
        first, arrays = group[0], before
        arrays += [
            self._gathered([cell.arrays[role] for cell in group], at) for role in range(len(before), len(first.arrays))
        ]
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

    def _gathered(self, places: list[_Place], at: _At) -> Any:
        """Arrays of all cells end to end; sums into rows that follow each other are one sum."""
        parts: list[Any] = []
        for kind, alike in itertools.groupby(places, self._reading.kind_of_sum):
            run = [*alike]
            parts += map(at, run) if kind is None else [_summed([*map(self._reading.maker, run)], at)]
        return _end_to_end(parts)


class _Reading:
    """Finds, in a flat step, the variables whose updates are alike."""

    def __init__(self, flat: FlatStep, count: int):
        self._flat, self._count = flat, count
        self._next = flat.results[len(flat.results) - count :]
        self._made_by = {operation.first_result: operation for operation in flat.operations}
        self._scalars: dict[Any, Any] = {}
        self._users: dict[_Place, list[FlatOperation]] = defaultdict(list)
        for operation in flat.operations:
            for place in operation.operands:
                self._users[place].append(operation)

    def groups(self) -> list[list[_Cell]]:
        """Cells that are updated by the same formula, where there are several."""
        alike: dict[Any, list[_Cell]] = defaultdict(list)
        for cell in self._cells():
            alike[cell.formula].append(cell)
        groups = [group for group in alike.values() if len(group) >= _LEAST_ALIKE]
        for group in groups:
            # Sums that can be one follow each other.
            group.sort(key=self._order)
        return groups

    def maker(self, place: _Place) -> FlatOperation:
        """What a value comes from."""
        return self._made_by[place]

    def kind_of_sum(self, place: _Place) -> Any:
        """The same for sums of updates into rows of zeros that can be one; None if a value is no such sum."""
        operation, flat = self._made_by.get(place), self._flat
        if operation is None or operation.primitive.name not in ("scatter-add", "scatter_add"):
            return None
        given, (rows, indices, _) = operation.parameters["dimension_numbers"], operation.operands
        rank, of_indices = len(flat.shape(rows)), len(flat.shape(indices)) - 1
        is_plain = (
            given.inserted_window_dims == given.scatter_dims_to_operand_dims == (0,)
            and given.update_window_dims == tuple(range(of_indices, of_indices + rank - 1))
            and not given.operand_batching_dims
            and flat.shape(indices)[-1:] == (1,)
            and self._is_zero(rows)
        )
        kind = flat.shape(rows)[1:], flat.dtype(rows), flat.dtype(indices), operation.parameters["mode"]
        return kind if is_plain and kind[-1] in _MODES else None

    def _order(self, cell: _Cell) -> Any:
        return [str(self.kind_of_sum(place)) for place in cell.arrays], cell.variables

    def _is_zero(self, place: _Place) -> bool:
        operation = self._made_by.get(place)
        if operation is not None and operation.primitive.name == "broadcast_in_dim":
            (place,) = operation.operands
        return place < 0 and not np.any(self._flat.numbers[-1 - place])

    def _cells(self) -> Iterator[_Cell]:
        members: dict[int, set[int]] = {}
        for number in range(self._count):
            shape = self._flat.shape(number)
            if not shape or self._next[number] == number or self._flat.shape(self._next[number]) != shape:
                continue
            found = {number}.union(*(members.get(one, {one}) for one in self._variables_of(number)))
            members.update(dict.fromkeys(found, found))
        for variables in {tuple(sorted(found)) for found in members.values()}:
            if math.prod(self._flat.shape(variables[0])) <= _MOST_NUMBERS and not any(map(self._is_whole, variables)):
                yield self._cell(variables)

    def _variables_of(self, number: int) -> set[int]:
        """Variables of the same shape from which the next value of one comes, number by number."""
        shape, seen, found, open_ = self._flat.shape(number), set(), set(), [self._next[number]]
        while open_:
            place = open_.pop()
            if place in seen or self._flat.shape(place) != shape:
                continue
            seen.add(place)
            if 0 <= place < self._count:
                found.add(place)
            operation = self._elementwise(place)
            open_ += operation.operands if operation is not None else ()
        return found

    def _elementwise(self, place: _Place) -> FlatOperation | None:
        operation = self._made_by.get(place)
        if operation is None or operation.primitive.name not in _ELEMENTWISE:
            return None
        shapes = ((),) if operation.primitive.name == "broadcast_in_dim" else ((), self._flat.shape(place))
        return operation if all(self._flat.shape(one) in shapes for one in operation.operands) else None

    def _cell(self, variables: tuple[int, ...]) -> _Cell:
        """Variables with their formula."""
        flat, arrays = self._flat, list(variables)
        scalars: dict[Any, _Place] = {}
        operations: list[Any] = []
        parameters: list[dict[str, Any]] = []
        known: dict[_Place, Any] = {number: ("array", role) for role, number in enumerate(variables)}

        def operand(place: _Place) -> Any:
            if place in known:
                return known[place]
            if flat.shape(place) == ():
                key = self._scalar(place)
                scalars.setdefault(key, place)
                return "scalar", key
            operation = self._elementwise(place)
            if operation is None:
                known[place] = "array", len(arrays)
                arrays.append(place)
                return known[place]
            operands = tuple(map(operand, operation.operands))
            # Of a scalar that is spread over the shape, they tell the shape.
            text = "" if operation.primitive.name == "broadcast_in_dim" else _text(operation.parameters)
            operations.append((operation.primitive, text, operands))
            parameters.append(operation.parameters)
            known[place] = "result", len(operations) - 1
            return known[place]

        results = tuple(operand(self._next[number]) for number in variables)
        formula = _Formula(tuple(operations), results, tuple(flat.dtype(place) for place in arrays))
        return _Cell(variables, flat.shape(variables[0]), formula, tuple(arrays), scalars, parameters)

    def _scalar(self, place: _Place) -> Any:
        """The same for scalars that are computed in the same way."""
        if place not in self._scalars:
            operation = self._made_by.get(place)
            if place < 0:
                number = np.asarray(self._flat.numbers[-1 - place])
                key: Any = (number.dtype.str, number.tobytes())
            elif operation is None or any(self._flat.shape(one) != () for one in operation.operands):
                key = place
            else:
                operands = tuple(self._scalar(one) for one in operation.operands)
                key = (operation.primitive.name, _text(operation.parameters), operands)
            # Short, whatever it is made of.
            self._scalars[place] = self._scalars.setdefault(("key", key), len(self._scalars))
        return self._scalars[place]

    def _is_whole(self, number: int) -> bool:
        """Whether something takes a variable from memory of its own, as it is or otherwise laid out."""
        open_ = [number]
        while open_:
            for operation in self._users[open_.pop()]:
                if operation.primitive.name in _TAKES_WHOLE:
                    return True
                if operation.primitive.name in _LAYOUT:
                    open_.append(operation.first_result)
        return False


def _text(parameters: dict[str, Any]) -> str:
    return repr(sorted(parameters.items(), key=lambda item: item[0]))


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
        if mode == lax.GatherScatterMode.FILL_OR_DROP:
            # Dropped there, too.
            place = jnp.where((places >= 0) & (places < rows), place, np.iinfo(places.dtype).max)
        numbers.append(place)
        updates.append(update.reshape(places.size, *zeros.shape[1:]))
        below += rows
    shape = updates[0].shape
    of_rows = lax.ScatterDimensionNumbers(
        update_window_dims=tuple(range(1, len(shape))), inserted_window_dims=(0,), scatter_dims_to_operand_dims=(0,)
    )
    return lax.scatter_add(
        jnp.zeros((below, *shape[1:]), updates[0].dtype),
        jnp.concatenate(numbers)[:, None],
        jnp.concatenate(updates),
        of_rows,
        mode=lax.GatherScatterMode.PROMISE_IN_BOUNDS if mode == lax.GatherScatterMode.CLIP else mode,
    )
