"""What each process of a group does with a fit that was sent to it."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from flatout.base.group import DividingGroup, Group
from flatout.base.options import options
from flatout.base.report import recorded
from flatout.base.when_used import keras
from flatout.engines.select import engine_for
from flatout.seam import patches
from flatout.seam.processes.divided_calls import divided
from flatout.seam.processes.sent_objects import Received
from flatout.seam.trainers import first_epoch, put_first_epoch

from .carried_state import CarriedState
from .following import following
from .line import Line


def fit_part(job: dict[str, Any], data: bytes, group: Group, line: Line) -> bytes:
    """What a worker process does with a job; returns its answer."""
    received = Received(data, _load_array)
    conduct, model, call, state = received.things
    state.put(in_group=True)
    line.is_busy = lambda: group.is_alone
    is_one, effects = group.place.size == 1, job["effects"]
    # The engine's programs divide batches, unless the calls of the model are divided here.
    workers = 1 if is_one or isinstance(group, DividingGroup) else engine_for(job["backend"]).devices
    callbacks = [*(call["callbacks"] if group.is_first else []), *([] if is_one else effects.stand_in())]
    with contextlib.ExitStack() as stack:
        stack.enter_context(options(**{**job["options"], "workers": workers, "force": True}))
        saves = stack.enter_context(_saves_noted(model, call["callbacks"]))
        begin = functools.partial(_resume, model, job["resume"])
        ended = functools.partial(_end_epoch, model, line, saves)
        stack.enter_context(following(model, group, effects, begin, ended))
        if isinstance(group, DividingGroup):
            stack.enter_context(divided(model, group))
        history = conduct("fit", model, (), {**call, "callbacks": callbacks})
    if job["rank"]:
        return b""
    return received.answer((history, recorded()[-1:], CarriedState.now()))


def _load_array(path: str) -> np.ndarray:
    # As writable as the user's, and still one copy for all until somebody writes.
    return np.asarray(np.load(path, mmap_mode="c"))


@contextlib.contextmanager
def _saves_noted(trained: Any, callbacks: list[Any]) -> Iterator[list[str]]:
    """The files that Keras' checkpoints of whole epochs write meanwhile."""
    saves: list[str] = []
    checkpoints = [callback for callback in callbacks if isinstance(callback, keras.callbacks.ModelCheckpoint)]
    if not checkpoints or any(checkpoint.save_freq != "epoch" for checkpoint in checkpoints):
        yield saves
        return

    def noting(name: str) -> Callable[..., Any]:
        original = patches.beneath(keras.Model, name)

        def save(model: Any, filepath: Any, *args: Any, **kwargs: Any) -> Any:
            result = original(model, filepath, *args, **kwargs)
            if model is trained:
                saves.append(str(filepath))
            return result

        return save

    with patches.replaced_here({(keras.Model, name): noting(name) for name in ("save", "save_weights")}):
        yield saves


def _end_epoch(model: Any, line: Line, saves: list[str], epoch: int) -> None:
    if line.is_stop_wanted:
        model.stop_training = True
    if saves:
        line.send("kept", epoch, saves[-1])
        saves.clear()


def _resume(model: Any, resume: tuple[int, str] | None) -> None:
    """Go on after the epoch that a `ModelCheckpoint` has kept, unless a `BackupAndRestore` has seen to it."""
    if resume is not None and not first_epoch(model, 0):
        model.load_weights(resume[1])
        put_first_epoch(model, resume[0] + 1)
