"""Compiling a model's step, with the engine that the plan names or, where that one cannot, with the backend's."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from flatout.base.errors import Refusal
from flatout.engines.contract import OUTPUT_BYTES_PER_CHUNK, Engine, StepProgram
from flatout.training.planning.engine_choice import choose_instead, engine_named
from flatout.training.planning.plan import Plan


@dataclass(frozen=True)
class Compiled:
    """A step program with the engine that made it, and the plan that names this engine."""

    plan: Plan
    engine: Engine
    program: StepProgram


def compile_step(
    plan: Plan,
    model: Any,
    data: Any,
    rows: int,
    batch_size: int,
    any_length: bool = False,
    output_bytes: int | None = None,
) -> Compiled:
    """Compile the step that a plan asks for; the arguments are those of `Engine.prepare`.

    Raises:
        Refusal: No engine can; stock Keras must run.
        FallbackRefused: An engine that was asked for cannot, in strict mode.
    """
    limits = (any_length, OUTPUT_BYTES_PER_CHUNK if output_bytes is None else output_bytes)
    engine = engine_named(plan.engine)
    try:
        return Compiled(plan, engine, engine.prepare(model, plan.task, data, rows, batch_size, *limits))
    except Refusal as refusal:
        other = choose_instead(plan, refusal.reason)
        if other is None:
            raise
    engine = engine_named(other.engine)
    return Compiled(other, engine, engine.prepare(model, other.task, data, rows, batch_size, *limits))
