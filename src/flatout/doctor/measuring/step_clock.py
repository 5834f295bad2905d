"""Times the steps of a stock `fit`: from the beginning of one to that of a later one, with nothing under way."""

from __future__ import annotations

import contextlib
import io
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from flatout.base.when_used import jax, keras, tf, torch
from flatout.doctor.diagnosis_facts import Span
from flatout.seam import stock_methods as stock
from flatout.seam.ablated_steps import AblatedStep

# Before the clock runs: the first step of a fit has work of its own.
WARM_STEPS = 1


class TooFewBatches(Exception):
    """The data ended before all steps were timed."""


@dataclass
class StepClock:
    """Stands before a model's train function.

    Attributes:
        first: Steps to let pass.
        count: Steps to time.
        steps_of_call: How many a call of the function takes; then `first` and `count` are calls.
    """

    first: int
    count: int
    steps_of_call: int = 1
    calls: list[tuple[float, float]] = field(default_factory=list)
    marks: list[float] = field(default_factory=list)
    first_call: float = 0.0

    def around(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def timed(*args: Any) -> Any:
            number = len(self.calls)
            if number in (self.first, self.first + self.count):
                _settle(args)
                self.marks.append(time.perf_counter())
            began = time.perf_counter()
            result = function(*args)
            if number == 0:
                _settle(result)
                self.first_call = time.perf_counter() - began
            self.calls.append((began, time.perf_counter()))
            return result

        return timed

    @property
    def seconds(self) -> float:
        """Of a step."""
        return (self.marks[1] - self.marks[0]) / (self.count * self.steps_of_call)

    def spans(self) -> list[Span]:
        """The steps that were timed, since the first of them."""
        start = self.marks[0]
        return [
            Span("step", f"step {number + 1}", began - start, ended - began)
            for number, (began, ended) in enumerate(self.calls[self.first : self.first + self.count])
        ]


def run_steps(
    model: Any, step: AblatedStep, data: dict[str, Any], count: int, first: int = WARM_STEPS, **arguments: Any
) -> StepClock:
    """Some steps of stock Keras, on arguments of `fit` that are enough for `first + count + 1` of them.

    What the fit would print is not printed.

    Raises:
        TooFewBatches: They were not enough.
    """
    clock = StepClock(first, count, model.steps_per_execution)
    with contextlib.ExitStack() as stack:
        stack.enter_context(step.in_place(clock.around))
        stack.enter_context(contextlib.redirect_stdout(io.StringIO()))
        stack.enter_context(_warnings_apart())
        stock.original("fit")(model, **data, **{"verbose": 0, **arguments})
    if len(clock.marks) < 2:
        raise TooFewBatches(f"The data ended after {len(clock.calls)} of {first + count + 1} steps.")
    return clock


@contextlib.contextmanager
def _warnings_apart() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def _settle(values: Any) -> None:
    """Wait until the device has nothing left to do."""
    backend = keras.config.backend()
    if backend == "jax":
        jax.block_until_ready([leaf for leaf in jax.tree.leaves(values) if isinstance(leaf, jax.Array)])
    elif backend == "torch" and torch.cuda.is_available():
        torch.cuda.synchronize()
    elif backend == "tensorflow" and tf.config.list_physical_devices("GPU"):
        tf.test.experimental.sync_devices()
