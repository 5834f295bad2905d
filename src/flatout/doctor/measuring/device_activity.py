"""How long a GPU works on a step, by the profiler of the backend: its kernels and copies, on all streams together."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from flatout.base.when_used import jax, keras, torch

_STREAM = "Stream"


@dataclass(frozen=True)
class DeviceActivity:
    """Of a step.

    Attributes:
        seconds: In which at least one kernel or copy ran.
        kernels: How many.
    """

    seconds: float
    kernels: float


def device_activity(run: Callable[[], int]) -> DeviceActivity | None:
    """What a GPU does while `run` runs, divided by the number of steps that it returns; None if nobody can tell.

    Profiling slows the host down, not the kernels, so their time goes with that of a step without it.
    """
    spans = {"jax": _spans_on_jax, "torch": _spans_on_torch}.get(keras.config.backend())
    if spans is None:
        return None
    found, steps = spans(run)
    return DeviceActivity(seconds_covered(found) / steps, len(found) / steps) if found else None


def seconds_covered(spans: Iterable[tuple[float, float]]) -> float:
    """Seconds in which at least one of these spans, from a beginning to an end, ran."""
    covered, until = 0.0, float("-inf")
    for began, ended in sorted(spans):
        if ended > until:
            covered += ended - max(began, until)
            until = ended
    return covered


def _spans_on_torch(run: Callable[[], int]) -> tuple[list[tuple[float, float]], int]:
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        steps = run()
        torch.cuda.synchronize()
    events = [event for event in profile.events() if event.device_type == torch.autograd.DeviceType.CUDA]
    return [(1e-6 * event.time_range.start, 1e-6 * event.time_range.end) for event in events], steps


def _spans_on_jax(run: Callable[[], int]) -> tuple[list[tuple[float, float]], int]:
    with tempfile.TemporaryDirectory() as folder:
        with jax.profiler.trace(folder):
            steps = run()
        profiles = [jax.profiler.ProfileData.from_file(str(path)) for path in Path(folder).rglob("*.xplane.pb")]
    planes = [plane for profile in profiles for plane in profile.planes if plane.name.startswith("/device:GPU")]
    lines = [line for plane in planes for line in plane.lines if line.name.startswith(_STREAM)]
    events = [event for line in lines for event in line.events]
    return [(1e-9 * event.start_ns, 1e-9 * (event.start_ns + event.duration_ns)) for event in events], steps
