"""The fastest shape of a fused kernel on this GPU: measured on request."""

from __future__ import annotations

import statistics
import time
from dataclasses import dataclass
from typing import Any

from flatout.base.errors import Refusal
from flatout.native.fused.fused_plan import FusedPlan, Precision

from .fused_runner import candidates, remember_shape
from .session import Session


@dataclass(frozen=True)
class ShapeTiming:
    """A shape of the kernel, and how long a step takes with it; None if it does not run on this GPU."""

    plan: FusedPlan
    us_per_step: float | None


def tune(
    session: Session, precision: Precision, x: Any, y: Any, steps: int = 500, repeats: int = 5
) -> list[ShapeTiming]:
    """Time every shape that serves a session's program, the fastest first, and remember that one.

    Raises:
        Refusal: None serves.
    """
    timings = []
    steps = min(steps, len(x) // session.program.batch_size)
    for plan in candidates(session.launcher, session.program, precision):
        try:
            session.fuse(precision, plan)
        except Refusal:
            timings.append(ShapeTiming(plan, None))
            continue
        session.bind(x, y)
        session.state("train").load()
        session.advance("train", 0, steps, len(x))
        runner, seconds = session.fused, []
        if runner is None:
            # A number left the range of halves; that is no matter of the shape.
            continue
        for _ in range(repeats):
            session.launcher.synchronize()
            began = time.perf_counter()
            runner.launch_steps()
            session.launcher.synchronize()
            seconds.append(time.perf_counter() - began)
        timings.append(ShapeTiming(plan, statistics.median(seconds) / steps * 1e6))
    timings.sort(key=lambda one: (one.us_per_step is None, one.us_per_step or 0.0))
    if timings and timings[0].us_per_step is not None:
        remember_shape(session.launcher.device_name, timings[0].plan)
    return timings
