"""How the candidates come to run: together in one program, interleaved, side by side, or one after the other."""

from __future__ import annotations

import math
import os
import time
from collections import Counter, defaultdict
from typing import Any

from flatout.base.when_used import jax, keras
from flatout.data.sources.description import ArraySource
from flatout.engines.contract import in_company
from flatout.engines.select import engine_for
from flatout.fit import conduct
from flatout.many.candidate import Candidate
from flatout.many.shared_call import SharedCall
from flatout.training.running import run

from .interleaved_wave import InterleavedWave
from .ready import Ready, is_built_alone, made_ready
from .threaded_wave import run_on_threads

MAPPED = "together, as one program"
INTERLEAVED = "beside each other on the device"
SIDE_BY_SIDE = "side by side on threads, with one program"
IN_TURNS = "one after the other"
# What state and activations of mapped models may take of the memory that is free.
_SHARE_OF_MEMORY = 0.7


def run_candidates(candidates: list[Candidate], shared: SharedCall) -> dict[str, int]:
    """Train all candidates; returns how they ran, in words, and how many that way."""
    ways: Counter[str] = Counter()
    is_on_cpu = keras.config.backend() == "jax" and jax.default_backend() == "cpu"
    if is_on_cpu and isinstance(shared.source, ArraySource):
        # XLA's products of stacked matrices are slower there than as many single ones, beside each other.
        threads = min(len(candidates), os.cpu_count() or 1)
        beside = run_on_threads(candidates, shared, threads, run_alone)
        ways[SIDE_BY_SIDE], ways[IN_TURNS] = beside, len(candidates) - beside
    else:
        ways += run_on_device(candidates, shared)
    return {way: count for way, count in ways.items() if count}


def run_on_device(candidates: list[Candidate], shared: SharedCall) -> Counter[str]:
    """Each candidate in the best way there is for it: mapped, interleaved, or in its turn."""
    ways: Counter[str] = Counter()
    groups: dict[str, list[tuple[Ready, Any]]] = defaultdict(list)
    rows = shared.source.rows if isinstance(shared.source, ArraySource) else 0
    with in_company(len(candidates)), InterleavedWave(rows, len(candidates)) as wave:
        for candidate in candidates:
            with candidate.generators.seeded(candidate.seed):
                is_alone = is_built_alone(candidate, shared)
                if not is_alone:
                    wave.finish()
                ready = made_ready(candidate, shared)
                traced = _traced_to_be_mapped(ready) if is_alone else None
                if traced is None and not (is_alone and _is_interleaved(ready)):
                    run_alone(ready, shared)
                    ways[IN_TURNS] += 1
                    continue
            if traced is not None:
                groups[traced.digest].append((ready, traced))
            else:
                wave.add(ready)
                ways[INTERLEAVED] += 1
        # The largest first: those that are mapped have the device to themselves.
        for group in sorted(groups.values(), key=len, reverse=True):
            if len(group) > 1:
                wave.finish()
                if _are_mapped(group):
                    ways[MAPPED] += len(group)
                    continue
            for ready, _ in group:
                wave.add(ready)
            ways[INTERLEAVED] += len(group)
        wave.finish()
    return ways


def run_alone(ready: Ready, shared: SharedCall) -> None:
    """Train a candidate from begin to end."""
    candidate, started = ready.candidate, time.perf_counter()
    if ready.prepared is None:
        conduct("fit", candidate.model, (), shared.on_its_rows(candidate, ready.call))
    else:
        run(candidate.model, ready.call, ready.prepared, ready.validation, started)
    shared.ownership.note(candidate.model)
    candidate.finish(time.perf_counter() - started)


def _traced_to_be_mapped(ready: Ready) -> Any:
    """What is traced of a candidate that can be mapped; None for others."""
    if keras.config.backend() != "jax":
        return None
    from .mapped_wave import can_be_mapped, traced_model

    if not can_be_mapped(ready):
        return None
    ready.feed.generators = ready.candidate.generators
    return traced_model(ready)


def _are_mapped(group: list[tuple[Ready, Any]]) -> bool:
    """Train candidates of one architecture together, if they can be; whether they were."""
    from .mapped_wave import run_mapped

    return run_mapped(group, _slots(group[0][1].nbytes, len(group)))


def _is_interleaved(ready: Ready) -> bool:
    return ready.prepared is not None and ready.prepared.program.runs_beside_others


def _slots(nbytes: int, candidates: int) -> int:
    """How many models of so many bytes the device holds at once; as many in each wave."""
    free = engine_for("jax").free_memory()
    most = candidates if free is None else max(1, int(_SHARE_OF_MEMORY * free / max(1, nbytes)))
    waves = math.ceil(candidates / most)
    return math.ceil(candidates / waves)
