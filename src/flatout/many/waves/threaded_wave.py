"""Candidates on threads of the host, as many at once as it has cores: on jax a model draws from its own variables."""

from __future__ import annotations

import contextvars
import threading
import time
from collections.abc import Callable
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from typing import Any

from flatout.many.candidate import Candidate
from flatout.many.shared_call import SharedCall
from flatout.seam.model_copies import keras_kept
from flatout.training.running import run_pieces

from .guarded_callbacks import guarded
from .ready import Ready, is_built_alone, made_ready


def run_on_threads(
    candidates: list[Candidate], shared: SharedCall, threads: int, run_alone: Callable[[Ready, SharedCall], None]
) -> int:
    """Train all candidates; returns how many of them ran beside others."""
    beside = 0
    running: set[Future[Any]] = set()
    has_failed = threading.Event()
    with ThreadPoolExecutor(threads, "flatout-many") as pool:
        try:
            for candidate in candidates:
                if len(running) == threads:
                    done, running = wait(running, return_when=FIRST_COMPLETED)
                    _raise_errors(done)
                with candidate.generators.seeded(candidate.seed):
                    is_alone = is_built_alone(candidate, shared)
                if not is_alone:
                    _finish(running)
                # Who is waited for wants the place of the process' generators, too.
                with keras_kept(), candidate.generators():
                    ready = made_ready(candidate, shared)
                if ready.prepared is None or not is_alone:
                    # What draws from the generators of the process must not share the time.
                    _finish(running)
                    running = set()
                    with keras_kept(), candidate.generators():
                        run_alone(ready, shared)
                    continue
                ready.feed.generators = candidate.generators
                callbacks = guarded(ready.call["callbacks"], candidate, ready.feed.steps, ready.call["epochs"])
                ready.call["callbacks"] = callbacks
                running.add(pool.submit(contextvars.copy_context().run, _run_until, has_failed, ready))
                beside += 1
            _finish(running)
        except BaseException:
            has_failed.set()
            raise
    return beside


def _run_until(has_failed: threading.Event, ready: Ready) -> None:
    """Train a candidate to its end, or until another one has failed: then it ends as after an error of its own."""
    assert ready.prepared is not None
    candidate, started = ready.candidate, time.perf_counter()
    pieces = run_pieces(candidate.model, ready.call, ready.prepared, ready.validation, started)
    for _ in pieces:
        if has_failed.is_set():
            pieces.throw(RuntimeError("Models that were trained beside this one have failed."))
    candidate.finish(time.perf_counter() - started)


def _finish(running: set[Future[Any]]) -> None:
    _raise_errors(wait(running).done)


def _raise_errors(done: set[Future[Any]]) -> None:
    for future in done:
        future.result()
