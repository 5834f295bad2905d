"""Several models of one architecture as one: their states stacked, their steps mapped, in one program."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from keras.src.backend.common.stateless_scope import StatelessScope

from flatout.engines.contract import Task

from . import executables as jax_cache
from .compiled_loop import choose_unit, loop
from .engine import STATE_PARTS, JaxProgram
from .flat_step import FlatStep, differing, flattened, mapped
from .gathered_step import gathered
from .metric_dispatch import results_or_logs

Values = dict[str, list[Any]]
# Convolutions that became products lay out what their windows cover: more than all else that a step holds.
_ROOM_FOR_PATCHES = 4
# In the place of a task, for what reads the metrics.
RESULTS = ("results", False)


@functools.partial(jax.jit, donate_argnums=0)
def _put(stack: Values, values: Values, slot: Any) -> Values:
    return jax.tree.map(lambda all_, own: lax.dynamic_update_index_in_dim(all_, own, slot, 0), stack, values)


@jax.jit
def _take(stack: Values, slot: Any) -> Values:
    return jax.tree.map(lambda all_: lax.dynamic_index_in_dim(all_, slot, 0, keepdims=False), stack)


class TracedModel:
    """What is traced of one model: its training, its validation and the results of its metrics, flat.

    Attributes:
        model: It.
        digest: The same for models that can be mapped together.
        at_reset: What its metrics begin with.
        nbytes: About what its state and its activations take, in bytes.
    """

    def __init__(self, model: Any, train: JaxProgram, test: JaxProgram | None):
        self.model = model
        programs = {"train": train, **({} if test is None else {"test": test})}
        self.steps: dict[tuple[str, bool], tuple[FlatStep, Any]] = {}
        self.programs = programs
        for task, program in programs.items():
            for is_rest, length in ((False, program.batch_size), (True, program.rest)):
                if length:
                    jaxpr, spec = program.traced(length)
                    self.steps[task, is_rest] = (flattened(jaxpr), spec)
        self.nbytes = _ROOM_FOR_PATCHES * max(flat.nbytes for flat, _ in self.steps.values())
        self.results = self._traced_results()
        model.reset_metrics()
        self.at_reset = [variable.value for variable in model.metrics_variables]
        flats = [*(flat for flat, _ in self.steps.values()), self.results[0]]
        layout = [(task, program.full, program.rest, program.batch_size) for task, program in programs.items()]
        self.digest = repr((layout, [flat.digest for flat in flats]))

    def flat(self, key: tuple[str, bool]) -> FlatStep:
        return self.results[0] if key == RESULTS else self.steps[key][0]

    def values(self) -> Values:
        """All that a training step takes of the model and gives back, by Keras' names."""
        return {part: [variable.value for variable in variables] for part, variables in self._variables().items()}

    @property
    def has_its_values(self) -> bool:
        """Whether the values are in the model's variables: nobody has taken them, or somebody has asked for them."""
        return bool(self.model._jax_state_synced)

    def give(self, values: Values) -> None:
        """Have values in the model's variables."""
        for part, variables in self._variables().items():
            for variable, value in zip(variables, values[part], strict=True):
                variable._value = value
        self.model._jax_state_synced = True

    def take_away(self, source: dict[str, Any]) -> None:
        """Have nothing in the variables: whoever asks for the values, as callbacks do, gets them from `source`."""
        for variables in self._variables().values():
            for variable in variables:
                variable._value = None
        # Not by `setattr`: Keras would look through all of it for layers and variables to track.
        vars(self.model)["_jax_state"] = source
        self.model._jax_state_synced = False

    @contextlib.contextmanager
    def unseen(self) -> Iterator[None]:
        """While nobody looks at values that were taken away: Keras' own callbacks have them put back all the same."""
        self.model._jax_state_synced = True
        try:
            yield
        finally:
            self.model._jax_state_synced = False

    def rows(self, task: str) -> int:
        """How many rows a pass takes."""
        program = self.programs[task]
        return program.full * program.batch_size + program.rest

    def _variables(self) -> dict[str, list[Any]]:
        model = self.model
        return {
            part: model.optimizer.variables if part == "optimizer_variables" else getattr(model, part)
            for part in STATE_PARTS["train"]
        }

    def _traced_results(self) -> tuple[FlatStep, Any]:
        model, variables = self.model, self.model.metrics_variables

        def results(values: list[Any]) -> Any:
            with StatelessScope(state_mapping=list(zip(variables, values, strict=True))):
                return model.get_metrics_result()

        traced = jax.jit(results).trace([variable.value for variable in variables])
        return flattened(traced.jaxpr), traced.out_info


class MappedModels:
    """As many models as there are slots, trained and validated together.

    Args:
        traced: All models that will have a slot, of one digest; each is to be filled in.
        slots: How many.

    Raises:
        Exception: As jax does where an operation of theirs cannot be mapped, or compiled.
    """

    def __init__(self, traced: Sequence[TracedModel], slots: int):
        self.slots = slots
        self._first = traced[0]
        # Which numbers in the steps are not the same for all models: they become inputs.
        self._lifted = {key: differing([one.flat(key) for one in traced]) for key in (*self._first.steps, RESULTS)}
        now = traced[:slots]
        self._stack: Values = jax.tree.map(_stacked, *(one.values() for one in now))
        self._numbers = {
            key: [_stacked(*(one.flat(key).numbers[place] for one in now)) for place in places]
            for key, places in self._lifted.items()
        }
        self._at_reset = [_stacked(*values) for values in zip(*(one.at_reset for one in now), strict=True)]
        # All at once, and before anything of a model is under way.
        begun = {key: self._begun(key) for key in self._first.steps} | {RESULTS: self._begun_results()}
        self._programs = {key: wait() for key, wait in begun.items()}

    def fill(self, slot: int, traced: TracedModel) -> None:
        """Have a slot for another model."""
        self.put(slot, traced.values())
        for key, places in self._lifted.items():
            own = [jnp.asarray(traced.flat(key).numbers[place]) for place in places]
            self._numbers[key] = _put(self._numbers[key], own, np.int32(slot))
        self._at_reset = _put(self._at_reset, traced.at_reset, np.int32(slot))

    def take(self, slot: int) -> Values:
        """The values of the model in a slot."""
        return _take(self._stack, np.int32(slot))

    def put(self, slot: int, values: Values) -> None:
        """Replace the values of the model in a slot."""
        self._stack = _put(self._stack, values, np.int32(slot))

    def hold(self, slot: int, traced: TracedModel) -> None:
        """Have the values of a model in its slot alone."""
        traced.take_away(_InSlot(self, slot))

    def give_back(self, slot: int, traced: TracedModel) -> None:
        """Have the values in the model again."""
        traced.give(self.take(slot))

    def run(self, task: Task, order: np.ndarray) -> list[dict[str, Any]]:
        """A pass over rows whose numbers are `order`, `[slots, rows]`; returns what each model's metrics come to."""
        self._stack["metrics_variables"] = jax.tree.map(jnp.copy, self._at_reset)
        program = self._first.programs[task]
        full, size, rest = program.full, program.batch_size, program.rest
        cut = full * size
        outputs = None
        if full:
            numbers = order[:, :cut].reshape(self.slots, full, size).transpose(1, 0, 2)
            outputs = self._advance((task, False), numbers)
        if rest:
            outputs = self._advance((task, True), order[:, cut:])
        return self._logs(task, outputs)

    def _advance(self, key: Any, order: np.ndarray) -> Any:
        outputs, state = self._programs[key](*self._arguments(key, order))
        self._stack.update(zip(STATE_PARTS[key[0]], state, strict=True))
        return outputs

    def _begun(self, key: Any) -> Callable[[], Any]:
        """What waits for the program of a task, for full batches or for the last one."""
        task, is_rest = key
        program = self._first.programs[task]
        shape = (self.slots, program.rest) if is_rest else (program.full, self.slots, program.batch_size)
        function = self._step(key) if is_rest else self._loop(key, task)
        return jax_cache.compile_shared(function, self._arguments(key, np.zeros(shape, np.int32)), donate=(0,))

    def _begun_results(self) -> Callable[[], Any]:
        """What waits for the program that has the results of the metrics."""
        flat, spec = self._first.results
        run, structure = mapped(flat, self._lifted[RESULTS]), jax.tree.structure(spec)

        def results(values: Any, numbers: Any) -> Any:
            return jax.tree.unflatten(structure, run(values, [], numbers))

        return jax_cache.compile_shared(results, (self._stack["metrics_variables"], self._numbers[RESULTS]), donate=())

    def _arguments(self, key: Any, order: np.ndarray) -> tuple[Any, ...]:
        task, is_rest = key
        state = tuple(self._stack[part] for part in STATE_PARTS[task])
        bounds = () if is_rest else (np.array([0, len(order)], np.int32),)
        data = self._first.programs[task].data, self._numbers[key]
        return (state, data, jax.device_put(np.ascontiguousarray(order)), *bounds)

    def _step(self, key: Any) -> Callable[..., Any]:
        flat, spec = self._first.steps[key]
        run, structure = mapped(flat, self._lifted[key]), jax.tree.structure(spec)

        def step(state: Any, data: Any, numbers: Any) -> Any:
            rows, lifted = data
            batch = jax.tree.leaves(gathered(rows, numbers))
            return jax.tree.unflatten(structure, run(jax.tree.leaves(state), batch, lifted))

        return step

    def _loop(self, key: Any, task: Task) -> Callable[..., Any]:
        program = self._first.programs[task]
        output = jax.tree.map(
            lambda leaf: jax.ShapeDtypeStruct((self.slots, *leaf.shape), leaf.dtype), self._first.steps[key][1][0]
        )
        cost = replace(program.cost, operations=self.slots * program.cost.operations)
        unit = choose_unit(program.full, cost)
        while program.full % unit:
            unit -= 1
        return loop(self._step(key), output, unit, None)

    def _logs(self, task: Task, outputs: Any) -> list[dict[str, Any]]:
        results = self._programs[RESULTS](self._stack["metrics_variables"], self._numbers[RESULTS])
        chosen = jax.device_get(dict(results_or_logs(results, outputs)))
        return [{name: value[slot] for name, value in chosen.items()} for slot in range(self.slots)]


class _InSlot(dict[str, Any]):
    """What Keras takes a model's values from when somebody asks for them, as it does between the steps of a `fit`."""

    def __init__(self, models: MappedModels, slot: int):
        super().__init__(is_not_empty=True)
        self._models, self._slot = models, slot

    def get(self, name: str, default: Any = None) -> Any:
        if name not in self:
            self.update(self._models.take(self._slot))
        return super().get(name, default)


def _stacked(*values: Any) -> Any:
    # By the host: jax would compile a program for each shape.
    return jax.device_put(np.stack([np.asarray(value) for value in values]))
