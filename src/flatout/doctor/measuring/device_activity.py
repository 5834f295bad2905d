"""How long a GPU works on a step, by the profiler of the backend: its kernels and copies, on all streams together."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from flatout.base.when_used import jax, keras, torch

_STREAM = "Stream"


@dataclass(frozen=True, order=True)
class DeviceSpan:
    """A kernel or copy, and when it ran, in seconds."""

    began: float
    ended: float
    name: str = ""


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
    if keras.config.backend() not in _PROFILERS:
        return None
    with device_spans() as found:
        steps = run()
    return DeviceActivity(seconds_covered(found) / steps, len(found) / steps) if found else None


@contextlib.contextmanager
def device_spans() -> Iterator[list[DeviceSpan]]:
    """A list that holds, after the block, what a GPU did in it; nothing where no profiler can tell."""
    profiled = _PROFILERS.get(keras.config.backend())
    found: list[DeviceSpan] = []
    with contextlib.nullcontext() if profiled is None else profiled(found):
        yield found


def seconds_covered(spans: Iterable[DeviceSpan]) -> float:
    """Seconds in which at least one of these spans ran."""
    covered, until = 0.0, float("-inf")
    for span in sorted(spans):
        if span.ended > until:
            covered += span.ended - max(span.began, until)
            until = span.ended
    return covered


@contextlib.contextmanager
def _profiled_by_torch(found: list[DeviceSpan]) -> Iterator[None]:
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        yield
        torch.cuda.synchronize()
    for event in profile.events():
        if event.device_type == torch.autograd.DeviceType.CUDA:
            found.append(DeviceSpan(1e-6 * event.time_range.start, 1e-6 * event.time_range.end, event.name))


@contextlib.contextmanager
def _profiled_by_jax(found: list[DeviceSpan]) -> Iterator[None]:
    with tempfile.TemporaryDirectory() as folder:
        with jax.profiler.trace(folder):
            yield
        profiles = [jax.profiler.ProfileData.from_file(str(path)) for path in Path(folder).rglob("*.xplane.pb")]
    planes = [plane for profile in profiles for plane in profile.planes if plane.name.startswith("/device:GPU")]
    for line in (line for plane in planes for line in plane.lines if line.name.startswith(_STREAM)):
        for event in line.events:
            found.append(DeviceSpan(1e-9 * event.start_ns, 1e-9 * (event.start_ns + event.duration_ns), event.name))


_PROFILERS = {"jax": _profiled_by_jax, "torch": _profiled_by_torch}
