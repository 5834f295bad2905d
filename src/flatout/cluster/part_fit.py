"""What each process of a group does with a fit that was sent to it."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from flatout.base.options import options
from flatout.base.report import recorded
from flatout.base.when_used import keras
from flatout.engines.group import Group
from flatout.engines.select import engine_for
from flatout.seam import patches
from flatout.seam.processes.divided_calls import divided
from flatout.seam.processes.sent_objects import Received
from flatout.seam.trainers import first_epoch, put_first_epoch

from .carried_state import CarriedState
from .following import following
from .line import Line


def fit_part(job: dict[str, Any], data: bytes, group: Group | None, line: Line) -> bytes:
    """What a worker process does with a job; returns its answer."""
    received = Received(data, _load_array)
    conduct, model, call, state = received.things
    state.put(in_group=True)
    workers = engine_for(job["backend"]).devices if group is not None and group.divides_itself else 1
    wanted = options(**{**job["options"], "workers": workers, "force": True})
    if group is None:
        with wanted:
            history = conduct("fit", model, (), call)
    else:
        line.is_busy = lambda: group.is_alone
        callbacks = [*(call["callbacks"] if group.is_first else []), *job["effects"].stand_in()]
        with contextlib.ExitStack() as stack:
            stack.enter_context(wanted)
            saves = stack.enter_context(_saves_noted(call["callbacks"]))
            begin = functools.partial(_resume, model, job["resume"])
            ended = functools.partial(_end_epoch, model, line, saves)
            stack.enter_context(following(model, group, job["effects"], begin, ended))
            if not group.divides_itself:
                stack.enter_context(divided(model, group))
            history = conduct("fit", model, (), {**call, "callbacks": callbacks})
    if job["rank"]:
        return b""
    return received.answer((history, recorded()[-1:], CarriedState.now()))


def _load_array(path: str) -> np.ndarray:
    # As writable as the user's, and still one copy for all until somebody writes.
    return np.asarray(np.load(path, mmap_mode="c"))


@contextlib.contextmanager
def _saves_noted(callbacks: list[Any]) -> Iterator[list[str]]:
    """The files that Keras' checkpoints write meanwhile."""
    saves: list[str] = []
    if not any(isinstance(callback, keras.callbacks.ModelCheckpoint) for callback in callbacks):
        yield saves
        return

    def noting(name: str) -> Callable[..., Any]:
        def save(model: Any, filepath: Any, *args: Any, **kwargs: Any) -> Any:
            result = patches.beneath(keras.Model, name)(model, filepath, *args, **kwargs)
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
