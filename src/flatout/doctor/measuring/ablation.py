"""The measurement: a step as it is, and with one thing after the other taken away, in turns until time is up.

Machines are noisy, and what was measured a second ago was measured on another machine. So each round times every
variant for a moment. Noise only ever adds time, so a variant takes what the quicker rounds took (a lower quartile), and
what a part costs is the difference of two variants. The interval comes from drawing the rounds again and again.
"""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from flatout.base.when_used import keras
from flatout.bench.bench_device import device
from flatout.doctor.diagnosis_facts import Interval
from flatout.seam import ablated_steps
from flatout.seam.ablated_steps import AblatedStep

from .step_clock import WARM_STEPS, StepClock, TooFewBatches, run_steps
from .user_data import UserData

_SECONDS_OF_A_SEGMENT = 0.12
_MOST_STEPS, _MOST_WARM = 300, 8
_FEWEST_ROUNDS, _MOST_ROUNDS = 3, 9

_DRAWS = 400
# Without these there is nothing to tell.
_NEEDED = ("cached", "bar", "real")

Progress = Callable[[str, float], None]


@dataclass
class TimedVariant:
    """One way to run the step, and how long it took each time.

    Attributes:
        name: By which parts are computed from it.
        label: For people.
        step: As it runs.
        data: Arguments of `fit` that give so many batches.
        arguments: More of them.
        first: Steps before the clock runs.
        compiling: Seconds of its first step beyond those of a later one.
        steps: To time at once.
        rows: Of a batch; 0 for as many as the user's.
    """

    name: str
    label: str
    step: AblatedStep
    data: Callable[[int], dict[str, Any]]
    arguments: Callable[[], dict[str, Any]] = dict
    first: int = WARM_STEPS
    samples: list[float] = field(default_factory=list)
    compiling: float = 0.0
    steps: int = 1
    rows: int = 0

    @property
    def seconds(self) -> Interval:
        return Interval.of(list(_redrawn(self.samples)))

    def run(self, model: Any) -> StepClock:
        needed = (self.first + self.steps + 1) * model.steps_per_execution
        return run_steps(model, self.step, self.data(needed), self.steps, self.first, **self.arguments())


class Ablation:
    """Variants of one fit's step, timed in turns.

    Args:
        model: Compiled and built.
        data: What it is trained on.
        callbacks: Makes those of the user's that are to be timed.
        verbose: As the user's.
        until: `perf_counter` after which no new round begins.
    """

    def __init__(
        self, model: Any, data: UserData, callbacks: Callable[[], list[Any]], verbose: Any, until: float, tell: Progress
    ):
        self._model, self._data, self._until, self._tell = model, data, until, tell
        self.rows = data.batch_size()
        self.variants: dict[str, TimedVariant] = {}
        self.left_out: list[str] = []
        # What the first program of a process takes beside its own compiling.
        self.starting = 0.0
        plain = ablated_steps.plain(model)
        self._plain = plain
        batch = data.first_batch()
        cached = ablated_steps.repeated(batch)

        def again(steps: int) -> dict[str, Any]:
            return {"x": cached, "steps_per_epoch": steps}

        self._again = again
        first = WARM_STEPS + data.ahead
        self._add("cached", "one batch again and again, no callbacks", plain, again)
        has_callbacks = bool(callbacks())
        reading = data.reading
        if has_callbacks:
            self._add("real", "as it is", plain, reading, lambda: {"verbose": verbose, "callbacks": callbacks()}, first)
        label = "without your callbacks" if has_callbacks else "as it is"
        self._add("bar", label, plain, reading, lambda: {"verbose": verbose}, first)
        if verbose == 1:  # With 2 a line is written at the end of an epoch.
            self._add("input", "without callbacks and progress bar", plain, reading, dict, first)
        if device().is_gpu:
            on_host = ablated_steps.repeated(batch, on_device=False)
            label = "one batch again and again, from host memory"
            self._add("transfer", label, plain, lambda steps: {"x": on_host, "steps_per_epoch": steps})
        self._add("empty", "and a step that does nothing", ablated_steps.without_step(model), again)
        twice = ablated_steps.repeated(repeated_rows(batch, 2))
        self._add("twice", "one batch of twice the rows", plain, lambda steps: {"x": twice, "steps_per_epoch": steps})
        self._add("trivial loss", "and the mean of the outputs as loss", ablated_steps.without_loss(model), again)
        if model.metrics and len(model.metrics) > 1:
            self._add("no metrics", "and without metrics", ablated_steps.without_metrics(model), again)

    def _add(
        self,
        name: str,
        label: str,
        step: AblatedStep,
        data: Callable[[int], dict[str, Any]],
        arguments: Callable[[], dict[str, Any]] = dict,
        first: int = WARM_STEPS,
    ) -> None:
        self.variants[name] = TimedVariant(name, label, step, data, arguments, first)

    @property
    def as_it_is(self) -> TimedVariant:
        """The step with all that the user has."""
        return self.variants["real" if "real" in self.variants else "bar"]

    def add_loss(self, function: Callable[..., Any]) -> None:
        """Also time the step with another function for the loss."""
        step = ablated_steps.with_loss_function(self._model, function)
        self._add("vectorized loss", "and your loss as array code", step, self._again)

    def add_batch_size(self, rows: int) -> None:
        """Also time the step as it is in batches of another size."""

        def data(steps: int) -> dict[str, Any]:
            return self._data.in_batches_of(rows).reading(steps)

        as_it_is = self.as_it_is
        self._add("larger", f"as it is, with batches of {rows}", self._plain, data, as_it_is.arguments)
        self.variants["larger"].rows = rows

    def warm_up(self) -> None:
        """Compile each variant, and find out how many steps of it make a moment."""
        self._tell("compiling", 0.0)
        cold = TimedVariant("cold", "", ablated_steps.without_loss(self._model), self._again)
        with contextlib.suppress(Exception):  # As the variant of that name is left out.
            self._warm(cold)
        for number, variant in enumerate(list(self.variants.values())):
            self._tell(f"compiling: {variant.label}", 0.4 * number / len(self.variants))
            if time.perf_counter() > self._until and variant.name not in _NEEDED:
                self._leave_out(variant, "there was no time left")
                continue
            self._try(variant, self._warm)
        if "trivial loss" in self.variants:
            self.starting = max(0.0, cold.compiling - self.variants["trivial loss"].compiling)

    def _warm(self, variant: TimedVariant) -> None:
        clock = variant.run(self._model)
        variant.compiling = max(0.0, clock.first_call - clock.seconds)
        variant.steps = int(np.clip(math.ceil(_SECONDS_OF_A_SEGMENT / clock.seconds), 1, _MOST_STEPS))
        # The first batches of a pipeline come slower than those after them.
        variant.first += min(_MOST_WARM, variant.steps // 4)
        in_pass = self._data.batches_in_pass()
        if in_pass is not None and variant.data is not self._again:
            # A measurement that runs over the end of an epoch would time that, too.
            in_pass //= self._model.steps_per_execution
            variant.steps = max(1, min(variant.steps, in_pass - variant.first - 1))

    def run(self) -> None:
        """Rounds of all variants, until time is up or there are enough."""
        for number in range(_MOST_ROUNDS):
            if number >= _FEWEST_ROUNDS and time.perf_counter() > self._until:
                return
            for at, variant in enumerate(list(self.variants.values())):
                done = (number + at / len(self.variants)) / _MOST_ROUNDS
                self._tell(f"timing: {variant.label}", 0.4 + 0.6 * done)
                self._try(variant, lambda one: one.samples.append(one.run(self._model).seconds))

    def _try(self, variant: TimedVariant, work: Callable[[TimedVariant], None]) -> None:
        try:
            work(variant)
        except TooFewBatches:
            if variant.name in _NEEDED:
                if not variant.samples:
                    raise
            elif len(variant.samples) < _FEWEST_ROUNDS:
                self._leave_out(variant, "the data ended first")
        except Exception as error:
            if variant.name in _NEEDED:
                raise
            self._leave_out(variant, f"{type(error).__name__}: {error}")

    def _leave_out(self, variant: TimedVariant, why: str) -> None:
        del self.variants[variant.name]
        self.left_out.append(f"The step timed {variant.label}: {why}.")

    def seconds(self, *names: str) -> np.ndarray:
        """Seconds of a step, drawn again and again, of the first of these variants that was timed.

        All variants are drawn from the same rounds, so that those of two variants may be compared one by one.
        """
        rounds = min(len(variant.samples) for variant in self.variants.values())
        return next(_redrawn(self.variants[name].samples[:rounds]) for name in names if name in self.variants)


def _redrawn(samples: list[float]) -> np.ndarray:
    """The lower quartile of a variant's rounds, for many draws of so many rounds from them."""
    drawn = np.random.default_rng(0).integers(len(samples), size=(_DRAWS, len(samples)))
    return np.asarray(np.quantile(np.array(samples)[drawn], 0.25, axis=1))


def repeated_rows(batch: Any, times: int) -> Any:
    return keras.tree.map_structure(lambda leaf: None if leaf is None else np.concatenate([leaf] * times), batch)
