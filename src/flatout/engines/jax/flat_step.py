"""A traced step as one list of operations, apart from the numbers in it: what models of one architecture share.

Rates of schedules, weights of losses and momenta are numbers in a step's jaxpr. Two steps with the same operations and
other numbers are one program with numbers for inputs, which can be mapped over models.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
from jax.extend.core import ClosedJaxpr, Jaxpr, Literal

from .better_operations import BETTER_MAPPED, Instead
from .executables import bytes_of

# Calls whose operations are taken as if they stood there: nothing is differentiated any more.
_CALLS = {
    "pjit": "jaxpr",
    "jit": "jaxpr",
    "closed_call": "call_jaxpr",
    "core_call": "call_jaxpr",
    "checkpoint": "jaxpr",
    "remat": "jaxpr",
    "remat2": "jaxpr",
    "custom_jvp_call": "call_jaxpr",
    "custom_vjp_call": "call_jaxpr",
    "custom_vjp_call_jaxpr": "fun_jaxpr",
}


@dataclass(frozen=True)
class FlatOperation:
    """A primitive with its parameters, where its operands are, and the first of its results.

    A place from 0 on is that of a value; -1, -2, ... are those of numbers.

    Attributes:
        context: The settings of jax under which it was traced, which some primitives read again.
    """

    primitive: Any
    parameters: dict[str, Any]
    operands: tuple[int, ...]
    first_result: int
    context: Any

    def bind(self, *operands: Any) -> Any:
        with self.context.manager:
            return self.primitive.bind(*operands, **self.primitive.get_bind_params(self.parameters))


@dataclass(frozen=True)
class FlatStep:
    """A step, flat.

    Attributes:
        digest: Of all but the values of its numbers.
        numbers: Literals and constants, in the order of their use.
        nbytes: What its values take at most at a time, in bytes, if each is there until it is used for the last time.
        operations: In an order in which they can be done.
        results: Places of what it returns.
    """

    digest: str
    numbers: tuple[Any, ...]
    nbytes: int
    operations: tuple[FlatOperation, ...]
    results: tuple[int, ...]
    _avals: tuple[Any, ...]

    @property
    def count(self) -> int:
        """How many values there are: inputs and results of operations."""
        return len(self._avals)

    def shape(self, place: int) -> tuple[int, ...]:
        return tuple(self._avals[place].shape) if place >= 0 else np.shape(self.numbers[-1 - place])

    def dtype(self, place: int) -> Any:
        value = self._avals[place] if place >= 0 else self.numbers[-1 - place]
        return value.dtype if hasattr(value, "dtype") else np.asarray(value).dtype

    def replaced(self, instead: Mapping[str, Instead]) -> list[Instead]:
        """What would take the place of some of its operations."""
        found = []
        for operation in self.operations:
            other = instead.get(operation.primitive.name)
            if other is not None and other.is_better(*map(self._like, operation.operands), **operation.parameters):
                found.append(other)
        return found

    def _like(self, place: int) -> Any:
        return jax.ShapeDtypeStruct(self.shape(place), self.dtype(place))

    def run(
        self, inputs: Sequence[Any], numbers: Sequence[Any], instead: Mapping[str, Instead] | None = None
    ) -> list[Any]:
        """What the step returns, flat, for flat inputs and these numbers in the place of its own.

        For primitives that are named in `instead` that is computed, where it is better.
        """
        at = self.values(inputs, numbers, instead)
        return [at(place) for place in self.results]

    def values(
        self, inputs: Sequence[Any], numbers: Sequence[Any], instead: Mapping[str, Instead] | None = None
    ) -> Callable[[int], Any]:
        """What there is at each place then."""
        values, instead = list(inputs), instead or {}

        def at(place: int) -> Any:
            return values[place] if place >= 0 else numbers[-1 - place]

        for operation in self.operations:
            operands, other = [*map(at, operation.operands)], instead.get(operation.primitive.name)
            if other is not None and other.is_better(*operands, **operation.parameters):
                found = other.function(*operands, **operation.parameters)
            else:
                found = operation.bind(*operands)
            values.extend(found if operation.primitive.multiple_results else [found])
        return at


def flattened(closed: ClosedJaxpr) -> FlatStep:
    """The operations of a jaxpr, those of the calls in it in their place."""
    return _Flattening().of(closed)


def differing(steps: Sequence[FlatStep]) -> list[int]:
    """Which numbers are not the same in all of some steps that have the same digest."""
    first = steps[0].numbers
    return [
        place
        for place, number in enumerate(first)
        if any(bytes_of(number) != bytes_of(other.numbers[place]) for other in steps[1:])
    ]


class _Flattening:
    def __init__(self) -> None:
        self._operations: list[FlatOperation] = []
        self._numbers: list[Any] = []
        self._values = 0
        self._avals: list[Any] = []
        self._digest = hashlib.sha256()

    def of(self, closed: ClosedJaxpr) -> FlatStep:
        inputs = self._places(closed.jaxpr.invars)
        self._add(*(variable.aval for variable in closed.jaxpr.invars))
        results = self._inline(closed.jaxpr, closed.consts, inputs)
        self._add("results", results)
        digest = self._digest.hexdigest()
        numbers, nbytes = tuple(self._numbers), self._most_bytes(results)
        return FlatStep(digest, numbers, nbytes, tuple(self._operations), tuple(results), tuple(self._avals))

    def _most_bytes(self, results: list[int]) -> int:
        last = {place: len(self._operations) for place in results}
        for number, operation in reversed([*enumerate(self._operations)]):
            for place in operation.operands:
                last.setdefault(place, number)
        ending: dict[int, list[int]] = defaultdict(list)
        for place, number in last.items():
            if place >= 0:
                ending[number].append(place)
        sizes = [_bytes_of(aval) for aval in self._avals]
        made = [operation.first_result for operation in self._operations] + [self._values]
        now = most = sum(sizes[: made[0]])
        for number in range(len(self._operations)):
            now += sum(sizes[made[number] : made[number + 1]])
            most = max(most, now)
            now -= sum(sizes[place] for place in ending[number])
        return most

    def _inline(self, jaxpr: Jaxpr, constants: Sequence[Any], inputs: Sequence[int]) -> list[int]:
        """Add the operations of a jaxpr whose inputs are at these places; returns those of its results."""
        places: dict[Any, int] = dict(zip(jaxpr.invars, inputs, strict=True))
        places.update(
            (variable, self._number(value)) for variable, value in zip(jaxpr.constvars, constants, strict=True)
        )

        def place_of(atom: Any) -> int:
            return self._number(np.asarray(atom.val, atom.aval.dtype)) if isinstance(atom, Literal) else places[atom]

        for equation in jaxpr.eqns:
            operands = [place_of(atom) for atom in equation.invars]
            name = equation.primitive.name
            inner = equation.params.get(_CALLS.get(name, ""))
            if inner is not None:
                is_closed = isinstance(inner, ClosedJaxpr)
                body, of_body = (inner.jaxpr, inner.consts) if is_closed else (inner, [])
                results = self._inline(body, of_body, operands)
            else:
                first, results = self._values, self._places(equation.outvars)
                parameters, context = equation.params, equation.ctx
                operation = FlatOperation(equation.primitive, parameters, tuple(operands), first, context)
                self._operations.append(operation)
                outputs = [variable.aval for variable in equation.outvars]
                self._add(name, sorted(parameters), operands, outputs, context)
                for parameter in sorted(parameters):
                    self._add_parameter(parameters[parameter])
            places.update(zip(equation.outvars, results, strict=True))
        return [place_of(atom) for atom in jaxpr.outvars]

    def _places(self, variables: Sequence[Any]) -> list[int]:
        places = list(range(self._values, self._values + len(variables)))
        self._values += len(variables)
        self._avals += [variable.aval for variable in variables]
        return places

    def _number(self, value: Any) -> int:
        self._numbers.append(value)
        self._add("number", getattr(value, "dtype", type(value)), np.shape(value))
        return -len(self._numbers)

    def _add_parameter(self, value: Any) -> None:
        if isinstance(value, ClosedJaxpr):
            # A loop or a branch: its numbers are a part of the program.
            self._add(value.jaxpr, *map(bytes_of, value.consts))
        elif isinstance(value, (tuple, list)):
            self._add(len(value))
            for part in value:
                self._add_parameter(part)
        else:
            self._add(value)

    def _add(self, *parts: Any) -> None:
        self._digest.update("\n".join(map(str, parts)).encode() + b"\0")


def _bytes_of(aval: Any) -> int:
    return aval.size * aval.dtype.itemsize if hasattr(aval, "size") and hasattr(aval, "dtype") else 0


def mapped(step: FlatStep, lifted: Sequence[int]) -> Callable[[list[Any], list[Any], list[Any]], list[Any]]:
    """The step for several models: `(states, batches, numbers) -> results`, each stacked along its first axis.

    `numbers` are those at the places `lifted`; all others are the step's own.
    """

    def one(state: list[Any], batch: list[Any], numbers: list[Any]) -> list[Any]:
        own = list(step.numbers)
        for place, number in zip(lifted, numbers, strict=True):
            own[place] = number
        return step.run([*state, *batch], own, BETTER_MAPPED)

    return jax.vmap(one)
