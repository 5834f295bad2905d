"""`flatout.diagnose`: takes a fit apart by measurement, and leaves everything as it was."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from flatout.base.errors import DiagnosisFailed, InvalidOption
from flatout.base.options import current
from flatout.base.version import __version__
from flatout.base.when_used import jax, keras, torch
from flatout.bench.bench_device import device
from flatout.engines.rewind import Generators, Snapshot
from flatout.engines.select import engine_for
from flatout.seam import ablated_steps
from flatout.seam.model_copies import global_seeds, put_global_seeds
from flatout.seam.trainers import check_compiled
from flatout.training.arguments import bound, resolved, split_off_validation
from flatout.training.planning.call_facts import plan_call
from flatout.vectorize.compile_hook import is_users
from flatout.vectorize.decorator import vectorize

from . import advice
from .diagnosis import Diagnosis
from .diagnosis_facts import HotLine, Memory, Span, Variant
from .measuring.ablation import Ablation, Progress, TimedVariant
from .measuring.batch_shapes import batch_shapes
from .measuring.device_activity import device_activity
from .measuring.flatout_runs import FlatoutRun, run_flatout
from .measuring.host_syncs import HostSync, HostSyncs
from .measuring.hot_lines import Sampler
from .measuring.step_clock import StepClock, TooFewBatches
from .measuring.user_data import UserData
from .measuring.users_callbacks import Written, users_callbacks
from .measuring.validation_time import validation_seconds
from .step_budget import FitLength, between_epochs, parts_of_epoch, parts_of_step, verdict_of

DEFAULT_BUDGET = 60.0
# Of the time that is given, for rounds of variants; the rest is for compiling, sampling and flatout's own engine.
_FOR_ROUNDS = 0.6
_SECONDS_SAMPLED = 1.5
_STEPS_DRAWN = 12
# A batch that is usual for small models, if the user's is smaller.
_LARGER_BATCH = 256


def diagnose(
    model: Any, x: Any = None, y: Any = None, *, budget: float = DEFAULT_BUDGET, **arguments: Any
) -> Diagnosis:
    """Find out where the time of `model.fit(x, y, ...)` would go, what to change and what that would gain.

    Steps are run on the model and the data, and everything is put back afterwards: weights, optimizer, metrics, random
    generators. Callbacks of your own classes are copied, and called at batches and epochs. A generator cannot go back:
    what was read of it is gone.

    Args:
        model: A compiled Keras model.
        x: As for `keras.Model.fit`.
        y: As for `keras.Model.fit`.
        budget: About how many seconds it may take.
        **arguments: Every other argument of `keras.Model.fit`.

    Raises:
        DiagnosisFailed: The fit could not be measured: it raises itself, or its data end after a few batches.

    Returns:
        A `Diagnosis`, which a notebook shows; `print` it, or `save_html`, `save_json` and `save_trace` it.

    Example:
        >>> import flatout, keras, numpy as np
        >>> model = keras.Sequential([keras.layers.Input((4,)), keras.layers.Dense(1)])
        >>> model.compile("sgd", "mse")
        >>> diagnosis = flatout.diagnose(model, np.ones((640, 4)), np.ones(640), budget=5)
        >>> diagnosis.kind.endswith("-bound") or diagnosis.kind == "not separable"
        True
    """
    call = bound("fit", (x, y), arguments)
    return examine(model, call, budget)[0]


def examine(
    model: Any, call: dict[str, Any], budget: float = DEFAULT_BUDGET, tell: Progress = lambda what, done: None
) -> tuple[Diagnosis, Any]:
    """A diagnosis, and `x` for the fit itself to go on with."""
    if not budget > 0:
        raise InvalidOption(
            f"Invalid value for argument `budget`. Received: budget={budget}. Expected seconds above 0."
        )
    began = time.perf_counter()
    check_compiled(model, "fit")
    tell("reading the first batch", 0.0)
    given = call["x"]
    call = split_off_validation(resolved("fit", model, call))
    engine = engine_for(keras.config.backend())
    data = UserData(call, engine)
    try:
        data.build(model)
        with _untouched(model, engine, data):
            diagnosis = _Examination(model, call, data, budget, began, tell).result()
    except Exception as error:
        what = str(error) if isinstance(error, TooFewBatches) else f"{type(error).__name__}: {error}"
        raise DiagnosisFailed(f"This fit could not be measured. {what}", data.left(given)) from error
    return replace(diagnosis, seconds=time.perf_counter() - began), data.left(given)


class _Examination:
    """One fit that is taken apart."""

    def __init__(self, model: Any, call: dict[str, Any], data: UserData, budget: float, began: float, tell: Progress):
        self._model, self._call, self._data, self._tell = model, call, data, tell
        self._until = began + budget
        self._unchecked: list[str] = [f"Going back: {data.unrestored}"] if data.unrestored else []
        leaves = keras.tree.flatten([call[name] for name in ("x", "y", "validation_data")])
        self._shared = [model, *(leaf for leaf in leaves if leaf is not None)]
        self._written: Written = {}
        _, left_out = users_callbacks(call["callbacks"], self._shared, self._written, at_epochs=True)
        self._unchecked += [f"Callbacks: {one}" for one in left_out]
        self._loss = _users_loss(model)

    def _callbacks(self, at_epochs: bool) -> list[Any]:
        return users_callbacks(self._call["callbacks"], self._shared, self._written, at_epochs)[0]

    def result(self) -> Diagnosis:
        model, call, data = self._model, self._call, self._data
        script = Path(sys.argv[0]).name or "train.py"
        is_notebook = "ipykernel" in script
        until_rounds = time.perf_counter() + _FOR_ROUNDS * (self._until - time.perf_counter())
        verbose = 1 if call["verbose"] == "auto" else call["verbose"]
        ablation = Ablation(model, data, self._callbacks, verbose, until_rounds, self._tell)
        self._add_changes(ablation)
        ablation.warm_up()
        steps = call["steps_per_epoch"] or data.batches_in_pass() or 1
        ablation.add_epochs(steps)
        ablation.run()
        real = ablation.as_it_is
        hot_lines, syncs, timeline = self._watched(ablation)
        runs = self._flatout(real)
        validation, why = validation_seconds(model, call, engine_for(keras.config.backend()))
        epochs = max(1, call["epochs"] - call["initial_epoch"])
        shapes = batch_shapes(model, data)
        compiling = ablation.starting + (1 + shapes.again) * ablation.variants["cached"].compiling
        length = FitLength(steps, epochs, validation, compiling, between_epochs(ablation), ablation.at_epochs)
        busy = self._busy(real)
        parts = parts_of_step(ablation, None if busy is None else busy * real.seconds.mid)
        epoch = parts_of_epoch(length, real.seconds)
        kind, sentence = verdict_of(parts, epoch, self._loss is not None, data.kind != "arrays", shapes)
        if busy is not None:
            sentence += f" The GPU works {busy:.0%} of the time."
        plan = plan_call("fit", model, {**call, "x": data.left(call["x"])}, current())[0]
        evidence = advice.Evidence(
            ablation,
            parts,
            epoch,
            length,
            hot_lines,
            syncs,
            self._loss,
            runs,
            plan.accelerated,
            data.kind,
            kind,
            device().is_gpu,
            "flatout.enable()" if is_notebook else f"python -m flatout {script}",
            shapes,
        )
        variants = [Variant(one.name, one.label, one.seconds) for one in ablation.variants.values()]
        variants += [Variant(f"flatout {run.report.data}", _label(run), run.seconds) for run in runs]
        return Diagnosis(
            kind,
            sentence,
            self._facts(script, steps, epochs),
            real.seconds,
            parts,
            epoch,
            tuple(variants),
            advice.findings(evidence),
            hot_lines,
            timeline,
            self._memory(),
            tuple(str(plan).splitlines()),
            (*self._unchecked, *self._left_written(), *ablation.left_out, *filter(None, [why])),
            device_busy=busy,
        )

    def _left_written(self) -> list[str]:
        return [f"Going back: {who} has written {file}, which is left." for file, who in self._written.items()]

    def _add_changes(self, ablation: Ablation) -> None:
        """What could be changed, to be timed beside the step as it is."""
        if self._loss is not None:
            ablation.add("one row", "and your loss of one row", ablated_steps.with_loss_of_one_row(self._model))
            if hasattr(ablated_steps.only_loss(self._model), "fn"):
                with contextlib.suppress(Exception):
                    step = ablated_steps.with_loss_function(self._model, vectorize(self._loss))
                    ablation.add("vectorized loss", "and your loss as array code", step)
        rows = len(keras.tree.flatten(self._call["x"])[0]) if self._data.kind == "arrays" else 0
        larger = min(_LARGER_BATCH, rows // 8)
        if larger >= 2 * ablation.rows:
            ablation.add_batch_size(larger)

    def _watched(self, ablation: Ablation) -> tuple[tuple[HotLine, ...], list[HostSync], tuple[Span, ...]]:
        """The user's lines that steps spend their time in, those that wait for the device, and some steps."""
        self._tell("looking for the lines", 0.9)
        variant = ablation.variants.get("real epochs", ablation.as_it_is)
        callbacks = self._callbacks(variant is not ablation.as_it_is)
        watched = replace(variant, arguments=lambda: {**variant.arguments(), "callbacks": callbacks}, samples=[])
        sampler, sampler_of_items, reads = Sampler(), Sampler(), len(self._data.reads)
        clock: StepClock | None = None
        ended = time.perf_counter() + _SECONDS_SAMPLED
        with sampler:
            while time.perf_counter() < ended:
                with contextlib.suppress(TooFewBatches):
                    clock = watched.run(self._model)
                if clock is None:
                    break
        hot_lines = sampler.hot_lines()
        if self._data.has_processes and not any(one.part == "input" for one in hot_lines):
            with sampler_of_items, contextlib.suppress(Exception):
                self._data.read_here(_SECONDS_SAMPLED)
            hot_lines += tuple(replace(one, part="input") for one in sampler_of_items.hot_lines())
        with HostSyncs() as reads_on_host, contextlib.suppress(TooFewBatches):
            replace(ablation.as_it_is, steps=3, samples=[]).run(self._model)
        syncs = [one for one in reads_on_host.syncs() if one.is_of_user]
        if clock is None:
            return hot_lines, syncs, ()
        timeline = [*clock.spans()[:_STEPS_DRAWN]]
        end = timeline[-1].start + timeline[-1].seconds
        others = [("input", "batch", began, seconds) for began, seconds in self._data.reads[reads:]]
        others += [("callbacks", "callback", *call) for callback in callbacks for call in callback.calls]
        for lane, name, began, seconds in others:
            start = began - clock.marks[0]
            if 0 <= start <= end:
                timeline.append(Span(lane, name, start, seconds))
        return hot_lines, syncs, tuple(timeline)

    def _busy(self, variant: TimedVariant) -> float | None:
        """The share of a step in which the GPU works; None if there is none, or its profiler does not work."""
        if not device().is_gpu:
            return None
        self._tell("looking at the GPU", 0.93)
        try:
            activity = device_activity(lambda: len(variant.run(self._model).calls) * self._model.steps_per_execution)
        except Exception as error:
            self._unchecked.append(f"The share of time in which the GPU works: {type(error).__name__}: {error}")
            return None
        return None if activity is None else min(1.0, activity.seconds / variant.seconds.mid)

    def _flatout(self, variant: TimedVariant) -> tuple[FlatoutRun, ...]:
        def stock_step() -> float:
            return variant.run(self._model).seconds

        placements = ("auto", "streamed") if self._data.kind == "arrays" else ("auto",)
        runs: list[FlatoutRun] = []
        for placement in placements:
            self._tell(f"with flatout's engine ({placement} data)", 0.95)
            if time.perf_counter() > self._until and runs:
                break
            try:
                run = run_flatout(self._model, self._data, lambda: self._callbacks(False), placement, stock_step)
            except Exception as error:
                self._unchecked.append(f"flatout's engine, {placement} data: {type(error).__name__}: {error}")
                continue
            if run is not None and run.report.data not in [one.report.data for one in runs]:
                runs.append(run)
        return tuple(runs)

    def _facts(self, script: str, steps: int, epochs: int) -> dict[str, str]:
        model, backend = self._model, keras.config.backend()
        return {
            "script": script,
            "model": f"{model.name}, {model.count_params():,} parameters",
            "data": f"{self._data.kind}, batches of {self._data.batch_size()}",
            "fit": f"{epochs} epochs of {steps} steps",
            "backend": f"{backend}, Keras {keras.__version__}",
            "device": device().name,
            "flatout": __version__,
        }

    def _memory(self) -> tuple[Memory, ...]:
        model = self._model
        of_optimizer = model.optimizer.variables if model.optimizer is not None else []
        found = [
            Memory("variables of the model", _nbytes(variable.value for variable in model.variables)),
            Memory("variables of the optimizer", _nbytes(variable.value for variable in of_optimizer)),
            Memory("a batch", _nbytes(keras.tree.flatten(self._data.first_batch()))),
        ]
        if self._data.kind == "arrays":
            found.append(Memory("the data", _nbytes(keras.tree.flatten((self._call["x"], self._call["y"])))))
        peak = _peak_on_device()
        if peak:
            found.append(Memory("most that was used on the device", peak))
        with contextlib.suppress(ImportError):  # Windows has none.
            import resource

            scale = 1 if sys.platform == "darwin" else 1024
            most = scale * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
            found.append(Memory("most that this process used on the host", most))
        return tuple(found)


@contextlib.contextmanager
def _untouched(model: Any, engine: Any, data: UserData) -> Iterator[None]:
    """Have the model, its optimizers and metrics, and the random generators afterwards as they are now."""
    optimizers = [one for one in vars(model).values() if isinstance(one, keras.optimizers.Optimizer)]
    variables = [variable for optimizer in optimizers for variable in optimizer.variables]
    snapshot = Snapshot(model, engine, [*model.variables, *variables, *model.metrics_variables])
    seeds, generators = global_seeds(), Generators.now(engine)
    with ablated_steps.as_before(model):
        try:
            yield
        finally:
            # First of all: on jax, values may still be where the last step has left them.
            snapshot.restore()
            put_global_seeds(seeds)
            generators.put_back(engine)
            data.put_back()


def _users_loss(model: Any) -> Callable[..., Any] | None:
    """The user's own function behind the model's only loss."""
    loss = ablated_steps.only_loss(model)
    if loss is None:
        return None
    function = ablated_steps.loss_behind(loss)
    return function if is_users(function) else None


def _label(run: FlatoutRun) -> str:
    engine = run.report.engine if run.report.accelerated else "stock"
    return f"by flatout, {engine} engine, {run.report.data} data"


def _nbytes(values: Any) -> int:
    def nbytes(value: Any) -> int:
        if hasattr(value, "memory_usage"):
            return int(np.sum(value.memory_usage()))
        if hasattr(value, "nbytes"):
            return int(value.nbytes)
        return int(np.prod(value.shape)) * np.dtype(keras.backend.standardize_dtype(value.dtype)).itemsize

    return sum(nbytes(value) for value in values if hasattr(value, "shape"))


def _peak_on_device() -> int:
    if not device().is_gpu:
        return 0
    if keras.config.backend() == "torch":
        return int(torch.cuda.max_memory_allocated())
    if keras.config.backend() == "jax":
        return int((jax.devices()[0].memory_stats() or {}).get("peak_bytes_in_use", 0))
    return 0
