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
from flatout.doctor.diagnosis_facts import NO_TIME, Interval
from flatout.seam import ablated_steps
from flatout.seam.ablated_steps import AblatedStep

from .step_clock import WARM_STEPS, StepClock, TooFewBatches, run_steps
from .user_data import UserData

_SECONDS_OF_A_SEGMENT = 0.12
_MOST_STEPS, _MOST_WARM = 300, 8
_FEWEST_ROUNDS, _MOST_ROUNDS = 3, 9
# An epoch up to here is timed as a whole; of a longer one, and of a generator's, which reads on, as much as the second.
_SHORT_EPOCH, _SECONDS_OF_AN_EPOCH = 1.0, 0.3
_EPOCHS_TIMED = 2
# What compiling takes grows at most so with the rows: loops over them are unrolled.
_MOST_GROWTH = 2.0
# What is compiled in so many seconds is, even if there is no time left; more may take this part of what is left.
_SOON_COMPILED, _MOST_OF_TIME = 2.0, 1 / 3

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
        estimate: Seconds of a step when it first ran.
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
    estimate: float = 0.0

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
        callbacks: Makes those of the user's that are to be timed: at batches, or at epochs, too.
        verbose: As the user's.
        until: `perf_counter` after which no new round begins.
    """

    def __init__(
        self,
        model: Any,
        data: UserData,
        callbacks: Callable[[bool], list[Any]],
        verbose: Any,
        until: float,
        tell: Progress,
    ):
        self._model, self._data, self._until, self._tell = model, data, until, tell
        self._callbacks, self._verbose = callbacks, verbose
        self.rows = data.batch_size()
        self.variants: dict[str, TimedVariant] = {}
        self.left_out: list[str] = []
        # What the first program of a process takes beside its own compiling.
        self.starting = 0.0
        self.steps_of_epoch = 0
        self._called_at_epochs: list[list[Any]] = []
        plain = ablated_steps.plain(model)
        self._plain = plain
        batch = data.first_batch()
        cached = ablated_steps.repeated(batch)

        def again(steps: int) -> dict[str, Any]:
            return {"x": cached, "steps_per_epoch": steps}

        self._again = again
        first = WARM_STEPS + data.ahead
        self._add("cached", "one batch again and again, no callbacks", plain, again)
        has_callbacks = bool(callbacks(False))
        reading = data.reading
        if has_callbacks:
            self._add("real", "as it is", plain, reading, lambda: self._called(at_epochs=False), first)
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
        self.variants["twice"].rows = 2 * self.rows
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

    def _called(self, at_epochs: bool) -> dict[str, Any]:
        callbacks = self._callbacks(at_epochs)
        if at_epochs:
            self._called_at_epochs.append(callbacks)
        return {"verbose": self._verbose, "callbacks": callbacks}

    @property
    def at_epochs(self) -> Interval:
        """Seconds of an epoch that the user's callbacks take at its beginning and its end."""
        taken = [
            sum(seconds for callback in callbacks for _, seconds in callback.epoch_calls) / _EPOCHS_TIMED
            for callbacks in self._called_at_epochs
            # Not those that were made, and have not been called.
            if any(callback.epoch_calls for callback in callbacks)
        ]
        return Interval.of(taken) if taken else NO_TIME

    @property
    def as_it_is(self) -> TimedVariant:
        """The step with all that the user has."""
        return self.variants["real" if "real" in self.variants else "bar"]

    def add(self, name: str, label: str, step: AblatedStep) -> None:
        """Also time another step, on one batch again and again."""
        self._add(name, label, step, self._again)

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
        plain = self.variants["cached"]
        with contextlib.suppress(Exception):  # As the variant of that name is left out.
            self._warm(cold)
        # Of the others, those without a loss, or next to none, are compiled as soon as that one.
        known = {"empty": 0.0, "trivial loss": cold.compiling, "one row": cold.compiling}
        for number, variant in enumerate(list(self.variants.values())):
            self._tell(f"compiling: {variant.label}", 0.4 * number / len(self.variants))
            needed = known.get(variant.name, self._compiling(variant, plain))
            may_take = max(_SOON_COMPILED, _MOST_OF_TIME * (self._until - time.perf_counter()))
            if needed > may_take and variant.name not in _NEEDED:
                self._leave_out(variant, f"compiling it would take about {needed:.0f} s")
                continue
            self._try(variant, self._warm)
        if "trivial loss" in self.variants:
            self.starting = max(0.0, cold.compiling - self.variants["trivial loss"].compiling)

    def add_epochs(self, steps: int) -> None:
        """Also time epochs of at most so many steps: from a step to the same one of the next epoch.

        Their seconds are still those of a step, with its share of what happens between two epochs.
        """
        is_short = self._data.kind != "generator" and steps * self.as_it_is.estimate <= _SHORT_EPOCH
        at_once = self._model.steps_per_execution
        count = steps if is_short else min(steps, math.ceil(_SECONDS_OF_AN_EPOCH / self.as_it_is.estimate))
        calls = count // at_once
        if calls < 2 or count % at_once:
            return
        self.steps_of_epoch = count

        def data(_: int) -> dict[str, Any]:
            return self._data.epochs(count, _EPOCHS_TIMED)

        first = min(self.as_it_is.first, calls - 1)
        if self._callbacks(True):
            self._add("real epochs", "as it is, whole epochs", self._plain, data, lambda: self._called(True), first)
        self._add("bar epochs", "and without callbacks", self._plain, data, lambda: {"verbose": self._verbose}, first)
        for name in self.variants.keys() & {"real epochs", "bar epochs"}:
            self.variants[name].steps = calls

    def _compiling(self, variant: TimedVariant, plain: TimedVariant) -> float:
        """About how long it will take to compile a variant; nothing for the same step on the same shapes."""
        if not variant.rows:
            return 0.0 if variant.step is plain.step else plain.compiling
        growth, twice = _MOST_GROWTH, self.variants.get("twice")
        if twice is not None and twice is not variant:
            growth = min(growth, math.log2(max(1.0, twice.compiling / max(plain.compiling, 1e-9))))
        return float(plain.compiling * (variant.rows / self.rows) ** growth)

    def _warm(self, variant: TimedVariant) -> None:
        clock = variant.run(self._model)
        variant.compiling, variant.estimate = max(0.0, clock.first_call - clock.seconds), clock.seconds
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
