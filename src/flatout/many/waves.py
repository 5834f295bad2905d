"""How the candidates come to run: together in one program, side by side, or one after the other."""

from __future__ import annotations

import contextvars
import os
import time
from collections import Counter, defaultdict
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from typing import Any

from flatout.base.when_used import jax, keras
from flatout.data.sources.description import ArraySource
from flatout.engines.select import engine_for
from flatout.fit import conduct
from flatout.training.running import run

from .candidate import Candidate
from .guarded_callbacks import guarded
from .ready import Ready, made_ready
from .shared_call import SharedCall

MAPPED = "together, as one program"
SIDE_BY_SIDE = "side by side on threads, with one program"
IN_TURNS = "one after the other"
# What state and activations of mapped models may take of the memory that is free.
_SHARE_OF_MEMORY = 0.7


def run_candidates(candidates: list[Candidate], shared: SharedCall) -> dict[str, int]:
    """Train all candidates; returns how they ran, in words, and how many that way."""
    if keras.config.backend() != "jax" or not isinstance(shared.source, ArraySource):
        return _run_in_turns(candidates, shared)
    if jax.default_backend() == "cpu":
        # XLA's products of stacked matrices are slower there than as many single ones, beside each other.
        return _run_side_by_side(candidates, shared, min(len(candidates), os.cpu_count() or 1))
    return run_in_groups(candidates, shared)


def run_in_groups(candidates: list[Candidate], shared: SharedCall) -> dict[str, int]:
    """Candidates of one architecture as one program, as many at once as the device holds; the others in turns."""
    from .mapped_wave import can_be_mapped, run_mapped, traced_model

    groups: dict[str, list[tuple[Ready, Any]]] = defaultdict(list)
    for candidate in candidates:
        with candidate.generators.seeded(candidate.seed):
            ready = made_ready(candidate, shared)
            if can_be_mapped(ready):
                ready.feed.generators = candidate.generators
                traced = traced_model(ready)
                groups[traced.digest].append((ready, traced))
    together = [group for group in groups.values() if len(group) > 1]
    for group in together:
        run_mapped(group, _slots(group[0][1].nbytes, len(group)))
    mapped = {id(ready.candidate) for group in together for ready, _ in group}
    ways = {MAPPED: len(mapped), **_run_in_turns([one for one in candidates if id(one) not in mapped], shared)}
    return {way: count for way, count in ways.items() if count}


def _slots(nbytes: int, candidates: int) -> int:
    """How many models of so many bytes the device holds at once."""
    free = engine_for("jax").free_memory()
    return candidates if free is None else max(1, min(candidates, int(_SHARE_OF_MEMORY * free / max(1, nbytes))))


def _run_in_turns(candidates: list[Candidate], shared: SharedCall) -> dict[str, int]:
    for candidate in candidates:
        with candidate.generators.seeded(candidate.seed):
            _run_alone(made_ready(candidate, shared), shared)
    return {IN_TURNS: len(candidates)}


def _run_alone(ready: Ready, shared: SharedCall) -> None:
    candidate, started = ready.candidate, time.perf_counter()
    if ready.prepared is None:
        conduct("fit", candidate.model, (), shared.on_its_rows(candidate, ready.call))
    else:
        run(candidate.model, ready.call, ready.prepared, ready.validation, started)
    candidate.finish(time.perf_counter() - started)


def _run_side_by_side(candidates: list[Candidate], shared: SharedCall, threads: int) -> dict[str, int]:
    """Each candidate by itself, as many at once as there are cores: on jax a model draws from variables of its own."""
    ways: Counter[str] = Counter()
    running: set[Future[Any]] = set()
    with ThreadPoolExecutor(threads, "flatout-many") as pool:
        try:
            for candidate in candidates:
                if len(running) == threads:
                    done, running = wait(running, return_when=FIRST_COMPLETED)
                    _raise_errors(done)
                with candidate.generators.seeded(candidate.seed):
                    ready = made_ready(candidate, shared)
                    if ready.prepared is None:
                        # What draws from the generators of the process must not share the time.
                        _raise_errors(wait(running).done)
                        running = set()
                        _run_alone(ready, shared)
                        ways[IN_TURNS] += 1
                        continue
                ready.feed.generators = candidate.generators
                callbacks = guarded(ready.call["callbacks"], candidate, ready.feed.steps, ready.call["epochs"])
                ready.call["callbacks"] = callbacks
                running.add(pool.submit(contextvars.copy_context().run, _run_alone, ready, shared))
                ways[SIDE_BY_SIDE] += 1
            _raise_errors(wait(running).done)
        except BaseException:
            for candidate in candidates:
                if candidate.model is not None:
                    candidate.model.stop_training = True
            raise
    return dict(ways)


def _raise_errors(done: set[Future[Any]]) -> None:
    for future in done:
        future.result()
