"""Compiling a model's step, with the engine that the plan names or, where that one cannot, with the backend's."""

from __future__ import annotations

from typing import Any

from flatout.base.errors import Refusal
from flatout.engines.contract import OUTPUT_BYTES_PER_CHUNK, StepProgram
from flatout.training.planning.engine_choice import choose_instead, engine_named
from flatout.training.planning.plan import Plan


def compile_step(
    plan: Plan,
    model: Any,
    data: Any,
    rows: int,
    batch_size: int,
    any_length: bool = False,
    output_bytes: int | None = None,
) -> tuple[Plan, StepProgram]:
    """Compile the step that a plan asks for, by the engine that the plan returned names; see `Engine.prepare`.

    Raises:
        Refusal: No engine can; stock Keras must run.
        FallbackRefused: An engine that was asked for cannot, in strict mode.
    """
    limits = (any_length, OUTPUT_BYTES_PER_CHUNK if output_bytes is None else output_bytes)
    try:
        return plan, engine_named(plan.engine).prepare(model, plan.task, data, rows, batch_size, *limits)
    except Refusal as refusal:
        other = choose_instead(plan, refusal.reason)
        if other is None:
            raise
    return other, engine_named(other.engine).prepare(model, other.task, data, rows, batch_size, *limits)
