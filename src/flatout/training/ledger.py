"""The ledger: serves callbacks from the logs of many steps at once, in the order stock Keras would.

Each callback gets the service that its batch hooks need (`planning/callback_services.py`), and no more.
"""

from __future__ import annotations

import copy
import time
from collections import deque
from collections.abc import Callable
from typing import Any

import numpy as np

from flatout.base.group import joined
from flatout.base.when_used import keras, ops
from flatout.engines.contract import Task
from flatout.seam.callbacks import (
    as_python_numbers,
    is_served_by_threads,
    is_silent_in_fit,
    saves_after,
    wait_for_threads,
)

from .planning.callback_services import service_for

Mark = Callable[[list[Any]], Callable[[], object]]
# A bar that moves five times a second looks alive; each chunk costs a wait for the device.
_SECONDS_PER_CHUNK = 0.2
# A compiled loop cannot be interrupted: this long a Ctrl-C may wait.
_SECONDS_BEFORE_CTRL_C = 2.0
# A short chunk takes the device hardly longer than it takes Python to give it the next one.
_CHUNKS_BEHIND = 2

# By which a callback ends a run.
STOP_FLAGS = {"train": "stop_training", "test": "stop_evaluating", "predict": "stop_predicting"}
_ON_HOST = (np.ndarray, np.generic, float, int)


class Ledger:
    """Cuts a pass into chunks and tells the callbacks what happened in them.

    Args:
        callbacks: Keras' `CallbackList`, which hears of every `steps_per_execution`-th step of the model.
        model: The model.
        mode: `"train"`, `"test"` or `"predict"`.
        mark: Where the data come in chunks: makes what waits for values and no longer, so that the next chunk can be
            given to the device before this one is done.
    """

    def __init__(self, callbacks: Any, model: Any, mode: Task, mark: Mark | None = None):
        self._callbacks = callbacks
        self._model = model
        self._group = model.steps_per_execution
        self._mark = mark
        self._is_async = is_served_by_threads(callbacks, mode)
        self._begin: Callable[..., None] = getattr(callbacks, f"on_{mode}_batch_begin")
        self._end: Callable[..., None] = getattr(callbacks, f"on_{mode}_batch_end")
        self._flag = STOP_FLAGS[mode]
        services = [(callback, service_for(callback, mode)) for callback in callbacks.callbacks]
        wanted = {service for _, service in services}
        self.every_step = bool(wanted & {"replay", "cut"})
        self.single_steps = "step" in wanted
        # Whether a callback can stop training at a step inside a chunk, after the chunk has run.
        self.may_rewind = self.every_step and not self.single_steps
        # Whether a callback may look at the model after a chunk, and wants each of its steps.
        self.is_watched = self.every_step or self.single_steps
        self.keeps_outputs = mode == "predict"
        self._is_heard = wanted != {"none"}
        self._cutting = [callback for callback, service in services if service == "cut"]
        # The bar of a validation run inside fit is silent.
        shows_progress = any(
            service == "chunk" and callback.verbose == 1 and not (mode == "test" and is_silent_in_fit(callback))
            for callback, service in services
        )
        self._seconds_per_chunk = _SECONDS_PER_CHUNK if shows_progress else _SECONDS_BEFORE_CTRL_C
        # The step after the last one that callbacks have heard of, in this epoch.
        self.told = 0
        self._chunks = 0
        self._running: deque[Callable[[], object]] = deque()
        self._untold: tuple[int, list[Any]] | None = None
        self._told_at = 0.0
        self._chunk_began = 0.0
        self._seconds_per_step: float | None = None

    @property
    def stopped(self) -> bool:
        return bool(getattr(self._model, self._flag))

    def next_stop(self, start: int, end: int, unit: int = 1, longest: int | None = None) -> int:
        """Where the chunk must stop that starts at step `start` of an epoch of `end` steps.

        The engine likes chunks whose length is a multiple of `unit`, and can hold `longest` steps, or any number.
        """
        self._chunk_began = time.perf_counter()
        return self._stop(start, end, unit, longest)

    def takes_at_once(self, end: int | None, unit: int = 1, longest: int | None = None) -> bool:
        """Whether an epoch of `end` steps, if that is known, would be a single chunk."""
        return end is not None and self._stop(0, end, unit, longest) == end

    def _stop(self, start: int, end: int, unit: int, longest: int | None) -> int:
        if self.single_steps or self.stopped:
            return min(start + self._group, end)
        steps = end - start if longest is None else min(longest, end - start)
        if self._seconds_per_step is None:
            steps = min(steps, max(unit, min(64, end // 8)))
        elif steps * self._seconds_per_step > 1.5 * self._seconds_per_chunk:
            steps = max(1, int(self._seconds_per_chunk / self._seconds_per_step))
        stop = start + steps
        if stop < end and steps > unit:
            stop -= steps % unit
        if stop < end and self._group > 1:
            stop = min(end, start + -(-(stop - start) // self._group) * self._group)
        return self._first_cut(start, stop, end)

    def _first_cut(self, start: int, stop: int, end: int) -> int:
        """The first step at whose end a callback will save the model; asked of a copy of the callback itself."""
        for callback in self._cutting:
            probe = copy.copy(callback)
            for step in range(start, stop):
                if self._is_told(step, end) and saves_after(probe, self._named(step)):
                    stop = step + 1
                    break
        return stop

    def begin(self, start: int) -> None:
        """Announce a chunk before it runs, where a callback acts on every step."""
        if self.single_steps:
            self._begin(start)

    def end(self, start: int, stop: int, end: int, results: list[Any]) -> int:
        """Tell the callbacks about the steps `start` to `stop - 1`.

        Returns the step after the last one that counts: less than `stop` if a callback stopped inside the chunk.
        """
        if self.single_steps or not self.every_step:
            if self._is_heard and self._is_due(stop == end):
                self._tell(stop, results)
            elif self._is_heard:
                self._untold = stop, results
                self._wait_for(results[-1])
            elif stop == end:
                # Nobody asks for the values: the device need not be waited for, and its time is not known.
                return stop
            elif not self.keeps_outputs:
                self._wait_for(results[-1])
            self._measure(stop - start)
            return stop
        for step in range(start, stop):
            if not self._is_told(step, end):
                continue
            self.told = step + 1
            self._begin(step - step % self._group)
            self._end(self._named(step), as_numbers(results[step - start]))
            self._wait_for_callbacks()
            if self.stopped:
                return step + 1
        self._measure(stop - start)
        return stop

    def finish(self) -> None:
        """The epoch is over, which nobody may have known when its last chunk ended."""
        if self._untold is not None:
            self._tell(*self._untold)

    def _tell(self, stop: int, results: list[Any]) -> None:
        self._untold = None
        self._end(self._named(stop - 1), self._logs(results))
        if self.single_steps:
            self._wait_for_callbacks()
        self._told_at = time.perf_counter()

    def _wait_for_callbacks(self) -> None:
        """On jax, Keras serves some callbacks on other threads: what they do at this step is needed before the next."""
        if self._is_async:
            wait_for_threads(self._callbacks)

    def _is_due(self, is_last: bool) -> bool:
        """Whether the bar moves now: telling it waits for the device, which chunks of a stream should not do."""
        if self._mark is None or self.single_steps or is_last:
            return True
        return time.perf_counter() - self._told_at > _SECONDS_PER_CHUNK

    def _wait_for(self, result: Any) -> None:
        """Wait for the device; where chunks are sent to it meanwhile, it may be some of them behind."""
        values = keras.tree.flatten(result)[:1]
        if self._mark is None:
            for value in values:
                keras.ops.convert_to_numpy(value)
            return
        self._running.append(self._mark(values))
        if len(self._running) > _CHUNKS_BEHIND:
            self._running.popleft()()

    def _logs(self, results: list[Any]) -> dict[str, Any]:
        """What the callbacks are told."""
        if not self.keeps_outputs:
            return as_numbers(results[-1])
        if not self.single_steps:
            return {}
        joined = keras.tree.map_structure(lambda *parts: np.concatenate(parts), *results)
        return {"outputs": keras.tree.map_structure(keras.ops.convert_to_tensor, joined)}

    def _measure(self, steps: int) -> None:
        self._chunks += 1
        # The first chunk's time is mostly compiling. Processes that share a model must agree, and no two take as long.
        if self._chunks > 1 and joined() is None:
            self._seconds_per_step = max(1e-9, (time.perf_counter() - self._chunk_began) / steps)

    def _is_told(self, step: int, end: int) -> bool:
        return (step + 1) % self._group == 0 or step + 1 == end

    def _named(self, step: int) -> int:
        """The number under which callbacks hear of a step: the last of its group, full or not."""
        return step - step % self._group + self._group - 1


def on_host(logs: Any) -> Any:
    """The logs with NumPy arrays for tensors, waited for where a Ctrl-C is heard.

    Keras' `pythonify_logs` takes every error for a value that is no number, KeyboardInterrupt among them. Whoever lets
    it wait for the device, as a compiled epoch does for most of its time, loses the user's Ctrl-C there.
    """
    if isinstance(logs, dict) and all(isinstance(value, _ON_HOST) for value in logs.values()):
        return logs  # As those of every step of a chunk: a walk through each would take 11 us.
    return keras.tree.map_structure(_fetched, logs)


def _fetched(value: Any) -> Any:
    try:
        if ops.is_tensor(value):
            return ops.convert_to_numpy(value)
        # What the native engine will have computed.
        return np.asarray(value) if hasattr(value, "__array__") else value
    except Exception:  # Keras leaves such a value as it is.
        return value


def as_numbers(logs: Any) -> dict[str, Any]:
    """The logs as Keras tells them to callbacks: flat, with Python numbers."""
    return as_python_numbers(on_host(logs))
