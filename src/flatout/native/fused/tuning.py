"""The fastest shape of a fused kernel on this GPU: measured once, on request, and remembered on disk."""

from __future__ import annotations

import dataclasses
import json
import statistics
import time
from dataclasses import dataclass
from typing import Any

from flatout.base import disk_cache
from flatout.base.errors import Refusal
from flatout.native.launch.launcher import Launcher
from flatout.native.run.session import Session

from .fused_plan import FusedPlan, Precision
from .fused_runner import FusedRunner, candidates

_FILE = "tuned.json"


@dataclass(frozen=True)
class Timing:
    """A shape of the kernel, and how long a step takes with it; None if it does not run on this GPU."""

    plan: FusedPlan
    us_per_step: float | None


def tune(session: Session, precision: Precision, x: Any, y: Any, steps: int = 500, repeats: int = 5) -> list[Timing]:
    """Time every shape that serves a session's program, the fastest first, and remember that one.

    Raises:
        Refusal: None serves.
    """
    timings = []
    steps = min(steps, len(x) // session.program.batch_size)
    for plan in candidates(session, precision):
        try:
            session.fused = FusedRunner(session, precision, plan)
        except Refusal:
            timings.append(Timing(plan, None))
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
            runner.launch_steps(session)
            session.launcher.synchronize()
            seconds.append(time.perf_counter() - began)
        timings.append(Timing(plan, statistics.median(seconds) / steps * 1e6))
    timings.sort(key=lambda one: (one.us_per_step is None, one.us_per_step or 0.0))
    if timings and timings[0].us_per_step is not None:
        _remember(session.launcher, timings[0].plan)
    return timings


def in_order_of_speed(launcher: Launcher, found: list[FusedPlan]) -> list[FusedPlan]:
    """Plans with the one first that was the fastest on this GPU, if that was measured."""
    known = _read()
    return sorted(found, key=lambda plan: known.get(_key(launcher, plan)) != [plan.cluster, plan.warps])


def _key(launcher: Launcher, plan: FusedPlan) -> str:
    """All of a plan that is not tuned."""
    facts = {
        name: value for name, value in dataclasses.asdict(plan).items() if name not in ("cluster", "warps", "input")
    }
    return f"{launcher.device_name}: {json.dumps(facts)}"


def _read() -> dict[str, Any]:
    try:
        known = json.loads((disk_cache.folder("kernels") / _FILE).read_text())
    except (OSError, ValueError):
        # Not there, or not ours: nothing is known.
        return {}
    return known if isinstance(known, dict) else {}


def _remember(launcher: Launcher, plan: FusedPlan) -> None:
    known = {**_read(), _key(launcher, plan): [plan.cluster, plan.warps]}
    disk_cache.put(disk_cache.folder("kernels") / _FILE, json.dumps(known, indent=1).encode())
