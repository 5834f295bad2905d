"""Variables whose updates are alike: a step's operations are read, number by number, back from their next values.

As an optimizer changes each variable by itself, by the same formula; and a normalization, what it keeps.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from jax import lax

from .executables import bytes_of
from .flat_step import FlatOperation, FlatStep

# Each number of the result depends on the numbers at its own place alone.
_ELEMENTWISE = frozenset(
    (
        *("add", "add_any", "sub", "mul", "div", "rem", "pow", "max", "min", "neg", "sign", "abs", "square"),
        *("integer_pow", "sqrt", "rsqrt", "exp", "exp2", "expm1", "log", "log1p", "tanh", "logistic", "sin", "cos"),
        *("eq", "ne", "lt", "le", "gt", "ge", "and", "or", "not", "select_n", "clamp", "is_finite", "round", "floor"),
        *("ceil", "convert_element_type", "broadcast_in_dim", "copy", "copy_p"),
    )
)
# What only places numbers otherwise.
_LAYOUT = frozenset(("reshape", "transpose", "squeeze", "expand_dims", "convert_element_type", "copy", "copy_p"))
# What takes an array from memory of its own.
_TAKES_WHOLE = frozenset(
    ("dot_general", "conv_general_dilated", "while", "scan", "cond", "pallas_call", "ffi_call", "rnn")
)
# Where there are fewer alike, what joins them is no fewer launches; nor where no sums into rows are among what is
# joined: XLA has operations number by number share a kernel itself. (Counted in its text for an H200.)
_LEAST_ALIKE = 4
# Above this, the launch is little of what an update costs, and what is joined takes memory twice for a moment.
_MOST_NUMBERS = 2**17

# What becomes of updates to rows that are not there: all that is known here.
_MODES = (
    lax.GatherScatterMode.CLIP,
    lax.GatherScatterMode.FILL_OR_DROP,
    lax.GatherScatterMode.PROMISE_IN_BOUNDS,
)

# Of a value of a step.
Place = int


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
class VariableCell:
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
    arrays: tuple[Place, ...]
    scalars: dict[Any, Place]
    parameters: list[dict[str, Any]] = field(repr=False)

    @property
    def size(self) -> int:
        return math.prod(self.shape)


class AlikeUpdates:
    """Those of a flat step, whose last results are the next values of its first inputs, so many of them."""

    def __init__(self, flat: FlatStep, count: int):
        self._flat, self._count = flat, count
        self._next = flat.results[len(flat.results) - count :]
        self._made_by = {operation.first_result: operation for operation in flat.operations}
        self._scalars = _scalars(flat)
        sums = (one for one in flat.operations if one.primitive.name in ("scatter-add", "scatter_add"))
        self._kinds_of_sums = {one.first_result: self._kind_of_sum(one) for one in sums}
        self._users: dict[Place, list[FlatOperation]] = defaultdict(list)
        for operation in flat.operations:
            for place in operation.operands:
                self._users[place].append(operation)

    def groups(self) -> list[list[VariableCell]]:
        """Cells that are updated by the same formula, where there are several, and sums into rows are among it."""
        alike: dict[Any, list[VariableCell]] = defaultdict(list)
        for cell in self._cells():
            alike[cell.formula].append(cell)
        groups = [
            group
            for group in alike.values()
            if len(group) >= _LEAST_ALIKE
            and group[0].formula.operations
            and any(self.kind_of_sum(place) for cell in group for place in cell.arrays)
        ]
        for group in groups:
            # Sums that can be one follow each other.
            group.sort(key=self._order)
        return groups

    def maker(self, place: Place) -> FlatOperation:
        """What a value comes from."""
        return self._made_by[place]

    def kind_of_sum(self, place: Place) -> Any:
        """The same for sums of updates into rows of zeros that can be one; None if a value is no such sum."""
        return self._kinds_of_sums.get(place)

    def _kind_of_sum(self, operation: FlatOperation) -> Any:
        flat = self._flat
        given, (rows, indices, updates) = operation.parameters["dimension_numbers"], operation.operands
        rank, of_indices = len(flat.shape(rows)), len(flat.shape(indices)) - 1
        is_plain = (
            given.inserted_window_dims == given.scatter_dims_to_operand_dims == (0,)
            and given.update_window_dims == tuple(range(of_indices, of_indices + rank - 1))
            and not given.operand_batching_dims
            and flat.shape(indices)[-1:] == (1,)
            and flat.shape(updates)[of_indices:] == flat.shape(rows)[1:]
            and self._is_zero(rows)
        )
        kind = flat.shape(rows)[1:], flat.dtype(rows), flat.dtype(indices), operation.parameters["mode"]
        return kind if is_plain and kind[-1] in _MODES else None

    def _order(self, cell: VariableCell) -> Any:
        return [str(self.kind_of_sum(place)) for place in cell.arrays], cell.variables

    def _is_zero(self, place: Place) -> bool:
        operation = self._made_by.get(place)
        if operation is not None and operation.primitive.name == "broadcast_in_dim":
            (place,) = operation.operands
        return place < 0 and not np.any(self._flat.numbers[-1 - place])

    def _cells(self) -> Iterator[VariableCell]:
        members: dict[int, set[int]] = {}
        for number in range(self._count):
            if not self._flat.shape(number) or self._next[number] == number:
                continue
            from_ = {place for place in self._places_behind([self._next[number]]) if 0 <= place < self._count}
            same = {one for one in (number, *from_) if self._flat.shape(one) == self._flat.shape(number)}
            found = same.union(*(members.get(one, ()) for one in same))
            members.update(dict.fromkeys(found, found))
        for variables in {tuple(sorted(found)) for found in members.values()}:
            if math.prod(self._flat.shape(variables[0])) <= _MOST_NUMBERS and not any(map(self._is_whole, variables)):
                yield self._cell(variables)

    def _places_behind(self, places: Sequence[Place]) -> Iterator[Place]:
        """Those from which values come number by number, each after its own: arrays, operations on them, scalars."""
        # Without recursion: a formula may be as long as a loop of the user's.
        open_, seen = [(place, False) for place in reversed(places)], set()
        while open_:
            place, is_next = open_.pop()
            if is_next:
                yield place
            elif place not in seen:
                seen.add(place)
                operation = self._elementwise(place)
                open_.append((place, True))
                open_ += [(one, False) for one in reversed(operation.operands)] if operation is not None else []

    def _elementwise(self, place: Place) -> FlatOperation | None:
        operation, shape = self._made_by.get(place), self._flat.shape(place)
        if operation is None or shape == () or operation.primitive.name not in _ELEMENTWISE:
            return None
        shapes = ((),) if operation.primitive.name == "broadcast_in_dim" else ((), shape)
        return operation if all(self._flat.shape(one) in shapes for one in operation.operands) else None

    def _cell(self, variables: tuple[int, ...]) -> VariableCell:
        """Variables with their formula."""
        flat, arrays = self._flat, list(variables)
        scalars: dict[Any, Place] = {}
        operations: list[Any] = []
        parameters: list[dict[str, Any]] = []
        known: dict[Place, Any] = {number: ("array", role) for role, number in enumerate(variables)}
        after = [self._next[number] for number in variables]
        for place in self._places_behind(after):
            operation = self._elementwise(place)
            if place in known:
                continue
            if operation is not None:
                # Of a scalar that is spread over the shape, they tell the shape.
                text = "" if operation.primitive.name == "broadcast_in_dim" else _text(operation.parameters)
                operations.append((operation.primitive, text, tuple(known[one] for one in operation.operands)))
                parameters.append(operation.parameters)
                known[place] = "result", len(operations) - 1
            elif flat.shape(place) == ():
                known[place] = "scalar", self._scalars[place]
                scalars.setdefault(self._scalars[place], place)
            else:
                known[place] = "array", len(arrays)
                arrays.append(place)
        results = tuple(known[place] for place in after)
        formula = _Formula(tuple(operations), results, tuple(flat.dtype(place) for place in arrays))
        return VariableCell(variables, flat.shape(variables[0]), formula, tuple(arrays), scalars, parameters)

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


def _scalars(flat: FlatStep) -> dict[Place, int]:
    """A number for each scalar, the same for those that are computed in the same way."""
    kinds: dict[Any, int] = {}
    scalars: dict[Place, int] = {}

    def note(place: Place, kind: Any) -> None:
        if flat.shape(place) == ():
            scalars[place] = kinds.setdefault(kind, len(kinds))

    for place in range(flat.count):
        note(place, place)
    for number, value in enumerate(flat.numbers):
        if np.shape(value) == ():
            note(-1 - number, (str(flat.dtype(-1 - number)), bytes_of(value)))
    for operation in flat.operations:
        if operation.primitive.name in _ELEMENTWISE and all(one in scalars for one in operation.operands):
            operands = tuple(scalars[one] for one in operation.operands)
            note(operation.first_result, (operation.primitive.name, _text(operation.parameters), operands))
    return scalars


def _text(parameters: dict[str, Any]) -> str:
    return repr(sorted(parameters.items(), key=lambda item: item[0]))
