"""A model's step as a jaxpr, with our kernels in the place of recurrent layers where they can be had."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax

from flatout.base.errors import Reason, reason
from flatout.engines.contract import Structure, Task, in_short
from flatout.engines.kept_functions import Functions
from flatout.seam.trainers import stock_step

from .joined_step import JoinedStep, with_fewer_launches

# Seconds that a step becomes shorter by a kernel, and what it takes to compile the first one, and each (H200).
_SAVED_BY_A_KERNEL, _FIRST_KERNEL, _KERNEL = 15e-6, 1.5, 0.1


@dataclass(frozen=True)
class TracedStep:
    """A step's jaxpr, the specification of what it returns, and what is to be told of its recurrent layers."""

    jaxpr: Any
    spec: Any
    reasons: tuple[Reason, ...] = ()

    @property
    def has_recurrent_kernels(self) -> bool:
        return any(why.code == "recurrent_kernels" for why in self.reasons)

    @functools.cached_property
    def joined(self) -> JoinedStep | None:
        """The same with fewer launches, if there are any to spare."""
        return with_fewer_launches(self.jaxpr, self.spec)


def traced_step(model: Any, task: Task, state: Any, batch: Structure, in_stock_function: bool) -> TracedStep:
    """A step of Keras' own operations; `in_stock_function` has Keras come upon it later, and not trace it again."""
    function = stock_step(model, task)
    if not in_stock_function or not hasattr(function, "trace"):
        function = _apart(function)
    traced = function.trace(state, batch)
    return TracedStep(traced.jaxpr, traced.out_info)


def traced_step_with_kernels(model: Any, task: Task, state: Any, batch: Structure) -> TracedStep:
    """The same with kernels, which stock Keras shall not come upon."""
    # Not before: Pallas takes its time to import.
    from .recurrent.recurrent_layers import reasons_of, recurrent_kernels

    with recurrent_kernels() as decided:
        traced = _apart(stock_step(model, task)).trace(state, batch)
    return TracedStep(traced.jaxpr, traced.out_info, reasons_of(decided))


def _apart(function: Any) -> Any:
    python = getattr(function, "__wrapped__", function)
    return jax.jit(lambda state, batch: python(state, batch))


class KernelChoice:
    """Whether a model has kernels of ours, or why they were left: kept beside its functions, for its next fits."""

    def __init__(self, functions: Functions):
        self._why: list[Reason] = functions.get("kernels_left", list)
        # Layouts of rows.
        self._were_worth: list[Any] = functions.get("kernels_were_worth", list)

    def key(self, layout: Any) -> tuple[bool, bool]:
        """What tells programs for such rows that were compiled with another choice apart."""
        return self.are_left, layout in self._were_worth

    @property
    def are_left(self) -> bool:
        return bool(self._why)

    @property
    def reasons(self) -> tuple[Reason, ...]:
        return tuple(self._why)

    def joined(self, step: TracedStep, steps: int, layout: Any) -> JoinedStep | None:
        """The step with fewer launches, with kernels in it if in so many steps they save what compiling them takes."""
        joined = step.joined
        if joined is None or not joined.kernels:
            return joined
        is_worth = steps * joined.kernels * _SAVED_BY_A_KERNEL > _FIRST_KERNEL + joined.kernels * _KERNEL
        if is_worth and layout not in self._were_worth:
            # A shorter fit of such rows that follows does not go without what is there.
            self._were_worth.append(layout)
        return joined if layout in self._were_worth and not self.are_left else joined.without_kernels()

    def leave(self, error: Exception) -> None:
        self._why[:] = [reason("kernels_left", in_short(error))]

    def if_at_fault(self, compile_all: Callable[[], None]) -> bool:
        """Leave the kernels if something fails with them, and does not without; whether they were left."""
        try:
            compile_all()
        except Exception as error:
            self.leave(error)
            try:
                compile_all()
            except Exception:
                self._why.clear()
        return self.are_left
