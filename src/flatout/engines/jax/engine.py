"""The jax engine: K times the model's own step in one XLA program, state donated, rows gathered on the device."""

from __future__ import annotations

import contextlib
import functools
import itertools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import keras
import numpy as np
from keras import tree
from keras.src.trainers.data_adapters import array_slicing

from flatout.base.options import current
from flatout.base.uninterrupted import Uninterrupted
from flatout.data.stream.sender import Landing
from flatout.engines.contract import Engine, Structure, Task, is_on_gpu
from flatout.engines.looped_program import LoopedProgram

from . import executables as jax_cache
from . import metric_dispatch as jax_metrics
from .compiled_loop import Cost, anything_pays_on_cpu, choose_unit, cost_of, loop, loop_pays_on_cpu
from .data_parallel import OneDevice, SeveralDevices, can_follow, device_count, devices_for, own_rows_on_devices
from .gathered_step import on_rows
from .joined_step import JoinedStep
from .recurrent.recurrent_choice import has_kernels_for
from .sink import JaxLanding, JaxSink
from .traced_step import KernelChoice, TracedStep, traced_step, traced_step_with_kernels

# The parts of a model's state that each step takes and returns, as Keras' jax trainer names them.
STATE_PARTS = {
    "train": ("trainable_variables", "non_trainable_variables", "optimizer_variables", "metrics_variables"),
    "test": ("trainable_variables", "non_trainable_variables", "metrics_variables"),
    "predict": ("trainable_variables", "non_trainable_variables"),
}
# Forms that take more than one step.
_LOOPS = ("loop", "whole")
# Settings of jax that change what a program computes; the user may set them between calls.
_SETTINGS = ("jax_enable_x64", "jax_default_matmul_precision", "jax_numpy_dtype_promotion", "jax_default_prng_impl")


class JaxProgram(LoopedProgram):
    """One model's step, looped over placed rows.

    Three forms are compiled when they are first needed: the loop over full batches, a single full batch (for chunks
    that are no multiple of `unit`), and the partial last batch.
    """

    engine = "jax"
    _state: Any = None
    _signature: Any = None
    _marks: tuple[Any, ...] = ()
    cost = Cost(0.0, has_loop=False, has_convolution=False)
    # The step that was traced last.
    _step = TracedStep(None, None)
    _steps_to_come = 0
    # Whether the rows are one of many chunks of the same length, for which a program of its own pays.
    _is_chunk = False

    @property
    def runs_beside_others(self) -> bool:
        return bool(jax.default_backend() != "cpu")

    @functools.cached_property
    def _devices(self) -> OneDevice:
        return devices_for(current().workers)

    def _put(self, numbers: np.ndarray) -> Any:
        return self._devices.put(numbers)

    def _trace(self) -> None:
        self._variables: list[list[Any]] = []
        # Layouts of rows, and forms, in which kernels were compiled, or left.
        self._tried: set[Any] = set()
        self._settings = tuple(getattr(jax.config, name) for name in _SETTINGS)
        self._state = self._read_state(purge=False)
        self._signature = jax_cache.signature_of(self._state)
        jaxpr, (output, after) = self.traced(self.batch_size)
        self.cost = cost_of(jaxpr.jaxpr)
        if jax_cache.signature_of(after) != self._signature:
            raise TypeError("the step changes the shape or dtype of a variable")
        if isinstance(self._devices, SeveralDevices) and jaxpr.effects:
            raise TypeError("the step does more than compute, which several devices would do at once")
        if jax.default_backend() == "cpu":
            self._loops = loop_pays_on_cpu(self.cost)
            self.pays = anything_pays_on_cpu(self.cost)
        else:
            self.unit = choose_unit(self.full, self.cost)
        if self._task == "predict":
            self._limit_outputs(sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(output)))
        self._state = None

    def replace(self, data: Structure, rows: int, batch_size: int, filled: int | None = None) -> None:
        before = self._layout
        super().replace(data, rows, batch_size)
        self._is_chunk = jax.default_backend() != "cpu"
        if self._is_chunk and self._layout != before:
            self.unit = choose_unit(self.full, self.cost)

    def _hold(self, data: Structure, rows: int, batch_size: int) -> None:
        data = self._devices.copied(data)
        super()._hold(data, rows, batch_size)
        leaves, structure = jax.tree.flatten(data)
        self._layout = (self.batch_size, structure, *((leaf.shape, leaf.dtype, leaf.sharding) for leaf in leaves))

    def _is_whole(self, start: int, stop: int) -> bool:
        # Not with a smaller last batch, which no other chunk has.
        return self._is_chunk and self._loops and not self.rest and (start, stop) == (0, self.full)

    def _looped(self, start: int, stop: int) -> int:
        if self._is_whole(start, stop):
            return stop
        looped = super()._looped(start, stop)
        return looped if looped > 1 else 0

    def _run_loop(self, start: int, stop: int, keeps_all: bool) -> Any:
        if self._is_whole(start, stop):
            return self._advance(("whole", keeps_all))
        return self._advance(("loop", keeps_all), np.array([start, stop], np.int32))

    def _run_step(self, step: int) -> Any:
        return self._advance(("step",), np.int32(step)) if step < self.full else self._advance(("rest",))

    def end_pass(self) -> None:
        """Keras' `jax_state_sync`, without the conversion that each of its assignments makes (20 us a variable)."""
        model = self._model
        if self._state is not None and not model._jax_state_synced:
            with Uninterrupted():
                for variables, values in zip(self._variables, self._devices.on_one(self._state), strict=True):
                    for variable, value in zip(variables, values, strict=True):
                        variable._value = value
                model._jax_state_synced = True
        self._state = None

    def _advance(self, form: tuple[Any, ...], *position: Any) -> Any:
        """Run one form on the model's state, by Keras' own protocol for state that is away from the variables."""
        model = self._model
        if self._state is None or model._jax_state_synced:
            # A callback, or the pass before, has put the state back into the variables.
            with Uninterrupted():
                self._state = jax_cache.unshared(self._read_state(purge=True), self._kept_values())
                model._jax_state_synced = False
            self._state = self._devices.copied(self._state)
            self._signature = jax_cache.signature_of(self._state)
        run, arguments = self._ready(form, *position)
        with Uninterrupted():
            outputs, self._state = run(*arguments)
            # Not by `setattr`: Keras would look through all of it for layers and variables to track.
            parts = zip(STATE_PARTS[self._task], self._devices.on_one(self._state), strict=True)
            vars(model)["_jax_state"] = dict(parts)
        return outputs

    def _ready(self, form: tuple[Any, ...], *position: Any) -> tuple[Callable[..., Any], Any]:
        """The program of a form, compiled, and its arguments."""
        if (self._layout, form) not in self._tried:
            self._tried.add((self._layout, form))
            if self._has_kernels(form[0] in _LOOPS):
                self._try_kernels(form, *position)
        wait, arguments = self._compiled(form, self._state, *position)
        return wait(), arguments

    def expect(self, steps: int) -> None:
        self._steps_to_come = steps

    def _try_kernels(self, *form: Any) -> None:
        """Before the first steps on such rows, see whether our kernels can be compiled, whatever the batch."""
        step, reasons = self._step, self.reasons

        def compile_all() -> None:
            for one, *position in (form, (("rest",),)) if self.rest else (form,):
                self._compiled(one, self._state, *position)[0]()

        if not KernelChoice(self._functions).if_at_fault(compile_all):
            self._step, self.reasons = step, reasons

    def _compiled(self, form: tuple[Any, ...], state: Any, *position: Any) -> tuple[Callable[[], Any], Any]:
        """What waits for the program of a form, and its arguments."""
        order = self._rest_order if form == ("rest",) else self._order
        arguments = (state, self.data, order, *position)
        choice = KernelChoice(self._functions)
        kernels = choice.key(self._layout) if form[0] in _LOOPS else choice.are_left
        key = (form, self.unit, self.longest, self._signature, self._layout, self._settings, kernels)
        program = self._functions.get(
            key, lambda: jax_cache.compile_shared(self._function(*form), arguments, donate=(0,))
        )
        return program, arguments

    def compile_ahead(self, every_step: bool) -> None:
        self._begin()
        if self._order is None:
            self.begin_pass(None)
        state = self._devices.copied(self._read_state(purge=False))
        # Of a program with kernels that is found when they are tried.
        with contextlib.suppress(Exception) if self._has_kernels(True) else contextlib.nullcontext():
            self._compile_forms(state, every_step)

    def _compile_forms(self, state: Any, every_step: bool) -> None:
        looped = self._looped(0, self.full)
        if looped:
            self._compiled(("loop", every_step or self._task == "predict"), state, np.array([0, looped], np.int32))
        if looped < self.full:
            self._compiled(("step",), state, np.int32(0))
        if self.rest:
            # A batch that the model cannot take is found when it is its turn.
            with contextlib.suppress(Exception):
                self._compiled(("rest",), state)

    def _read_state(self, purge: bool) -> tuple[list[Any], ...]:
        """Keras' `_get_jax_state`, without its four walks through all layers where nothing has changed."""
        model = self._model
        if not self._variables or self._marks_now() != self._marks:
            self._variables = [
                model.optimizer.variables if part == "optimizer_variables" else getattr(model, part)
                for part in STATE_PARTS[self._task]
            ]
            self._marks = self._marks_now()
        state = tuple([_value(variable) for variable in variables] for variables in self._variables)
        if purge:
            for variable in itertools.chain.from_iterable(self._variables):
                variable._value = None
        return state

    def _marks_now(self) -> tuple[Any, ...]:
        known = itertools.chain.from_iterable(self._variables)
        return (getattr(self._model, "optimizer", None), *(variable.trainable for variable in known))

    def _kept_values(self) -> list[Any]:
        """Values of variables that this task does not take, and so must not lose by donation."""
        optimizer = getattr(self._model, "optimizer", None)
        if self._task == "train" or optimizer is None:
            return []
        return [variable.value for variable in optimizer.variables]

    def _function(self, form: str, keeps_all: bool = False) -> Callable[..., Any]:
        jaxpr, spec = self.traced(self.rest if form == "rest" else self.batch_size)
        step = on_rows(jaxpr, spec, self._devices)
        if form == "rest":
            return step
        if form == "step":
            return lambda state, data, order, position: step(state, data, order[position])
        steps, is_whole = self.full, form == "whole"
        unit, most = (1, steps) if is_whole else (self.unit, min(steps, self.longest or steps))
        looped = functools.partial(loop, output=spec[0], unit=unit, capacity=most if keeps_all else None)
        joined = self._joined()
        run = looped(step) if joined is None else joined.around(looped)
        # Of the whole the host need not ask how it goes on after each iteration, and has time for the next chunk.
        return (lambda state, data, order: run(state, data, order, (0, steps))) if is_whole else run

    def _joined(self) -> JoinedStep | None:
        """The step with fewer launches, if this program can have it."""
        if self._task != "train" or isinstance(self._devices, SeveralDevices):
            return None
        return KernelChoice(self._functions).joined(self._step, self._steps_to_come, self._layout)

    def _has_kernels(self, is_loop: bool) -> bool:
        """Whether kernels of ours are in a program, which might not be compiled for this GPU."""
        # The last batch may be too small for them.
        self.traced(self.batch_size)
        joined = self._joined() if is_loop else None
        return self._step.has_recurrent_kernels or (joined is not None and joined.kernels > 0)

    def traced(self, length: int) -> tuple[Any, Any]:
        """The step's jaxpr for batches of this length, and the specification of what it returns.

        The model's Python runs once for each length of a batch, whatever forms are built from it.
        """
        batch = jax.tree.map(lambda rows: jax.ShapeDtypeStruct((length, *rows.shape[1:]), rows.dtype), self.data)
        leaves, structure = jax.tree.flatten(batch)
        kernels = KernelChoice(self._functions)
        # XLA does not divide a kernel among devices.
        is_divided = isinstance(self._devices, SeveralDevices)
        has_kernels = not is_divided and not kernels.are_left and has_kernels_for(self._model)
        shapes = ((leaf.shape, leaf.dtype) for leaf in leaves)
        key = (structure, *shapes, self._signature, self._settings, has_kernels)
        self._step = self._functions.get(key, lambda: self._traced(batch, has_kernels, kernels))
        self.reasons = self._step.reasons if is_divided else (*self._step.reasons, *kernels.reasons)
        return self._step.jaxpr, self._step.spec

    def _traced(self, batch: Structure, has_kernels: bool, kernels: KernelChoice) -> TracedStep:
        state = self._read_state(purge=False) if self._state is None else self._state
        failure = None
        if has_kernels:
            try:
                return traced_step_with_kernels(self._model, self._task, state, batch)
            except Exception as error:
                failure = error
        # What is wrong with the model's own code fails here, again.
        step = traced_step(self._model, self._task, state, batch, self._is_for_good)
        if failure is not None:
            kernels.leave(failure)
        return step


def _value(variable: Any) -> Any:
    # `variable.value` looks for scopes first, none of which is open here: 5 us a variable.
    value = variable._value
    return variable.value if value is None else value


class JaxEngine(Engine):
    """Compiles Keras models on the jax backend, where every random generator of Keras is a variable of the model."""

    name = "jax"
    finalizes_after_errors = True
    compiles_ahead = True
    program = JaxProgram
    make_sink = JaxSink

    def __init__(self) -> None:
        jax_cache.use_persistent_cache()
        if not self.reuses_memory:
            # A program for one more length of chunks takes as long as a thousand dispatches of single steps.
            self.chunk_stretch = 64

    @property
    def compiler(self) -> str:
        return f"jax {jax.__version__}, {jax.default_backend()}"

    @property
    def devices(self) -> int:
        return device_count()

    def own_rows(self, model: Any) -> Callable[[int], slice] | None:
        return own_rows_on_devices()

    @property
    def shares_devices(self) -> bool:
        # NCCL, by which jax sums between GPUs, does not.
        return bool(jax.default_backend() == "cpu")

    def follows(self, distribution: Any) -> bool:
        return can_follow(distribution)

    @property
    def keeps_programs(self) -> bool:
        return bool(jax.config.jax_compilation_cache_dir and jax.config.jax_enable_compilation_cache)

    def begin_epoch(self, model: Any, task: Task) -> None:
        # Keras looks through all that is set for layers to track.
        if not getattr(model, "_jax_state_synced", False):
            model._jax_state_synced = True

    def end_run(self, model: Any) -> None:
        model._jax_state = None

    def reset_metrics(self, model: Any) -> None:
        jax_metrics.reset(model)

    def epoch_logs(self, model: Any, logs: Any) -> dict[str, Any]:
        return jax_metrics.result(model, logs)

    def place(self, inputs: Structure) -> Structure:
        def whole(leaf: Any) -> Any:
            if isinstance(leaf, jax.Array) or is_on_gpu(leaf):
                # Already there: Keras would take it through the host.
                array = leaf if isinstance(leaf, jax.Array) else jax.dlpack.from_dlpack(leaf)
                is_float = jnp.issubdtype(array.dtype, jnp.floating)
                return array.astype(keras.config.floatx()) if is_float else array
            sliceable = array_slicing.convert_to_sliceable(leaf, target_backend="jax")
            # A copy, also on a CPU: what the user writes into the array later must not reach half of the batches.
            return jax.device_put(sliceable.convert_to_jax_compatible(sliceable[slice(None)]), may_alias=False)

        return tree.map_structure(whole, inputs, none_is_leaf=False)

    @property
    def reuses_memory(self) -> bool:
        return jax.default_backend() != "cpu"

    def send(self, arrays: Structure) -> Structure:
        return jax.block_until_ready(jax.device_put(arrays))

    @property
    def landing(self) -> Landing | None:
        if isinstance(devices_for(current().workers), SeveralDevices):
            # A buffer would be filled anew before all devices have copied the rows.
            return None
        is_first_gpu = jax.default_backend() == "gpu" and jnp.empty(0).device.local_hardware_id == 0
        return JaxLanding() if is_first_gpu else None

    def mark(self, values: list[Any]) -> Callable[[], object]:
        return functools.partial(jax.block_until_ready, values)

    def free_memory(self) -> int | None:
        chosen = devices_for(current().workers)
        devices = chosen.devices_here if isinstance(chosen, SeveralDevices) else jax.local_devices()[:1]
        found = [device.memory_stats() for device in devices]
        if all(one and "bytes_limit" in one for one in found):
            return min(int(one["bytes_limit"] - one["bytes_in_use"]) for one in found)
        return super().free_memory()
