"""A fit by several processes: what goes to them, what each of them does with it, and what comes back."""

from __future__ import annotations

import contextlib
import functools
import sys
import tempfile
import types
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from flatout.base.errors import GroupFailed, InvalidOption, MissingExtra, reason
from flatout.base.options import Options, options
from flatout.base.report import record, recorded
from flatout.base.when_used import keras
from flatout.engines.group import Group
from flatout.engines.rewind import Generators
from flatout.engines.select import engine_for
from flatout.seam import patches
from flatout.seam.adapters import is_dataset
from flatout.seam.divided_calls import divided
from flatout.seam.process_state import ProcessState
from flatout.seam.stock_methods import Conduct
from flatout.seam.trainers import first_epoch, put_first_epoch
from flatout.training.passes import look_at_variables
from flatout.training.planning.callback_services import services_of

from .following import following
from .launcher import Launcher, LocalLauncher
from .line import Line
from .supervisor import Supervisor

# Smaller arrays go with everything else.
_SMALLEST_FILE = 1 << 20


@dataclass
class Surroundings:
    """What a process has beside the model that counts for a fit: random generators, and Keras' settings."""

    generators: Any
    state: ProcessState

    @classmethod
    def now(cls) -> Surroundings:
        now = Generators.now(engine_for(keras.config.backend()))
        return cls((now.python, now.numpy, now.of_engine), ProcessState.now())

    def put(self, in_group: bool = False) -> None:
        self.state.put(in_group)
        Generators(engine_for(keras.config.backend()), *self.generators).put_back()


def fit_in_group(model: Any, call: dict[str, Any], wanted: Options, conduct: Conduct) -> Any:
    """Run a `fit` by `wanted.workers` processes, and have its result here as if it had run here.

    Args:
        model: Compiled.
        call: All arguments of `fit`.
        wanted: The options in force.
        conduct: What runs a fit in a process.

    Raises:
        InvalidOption: An argument cannot be sent to another process.
        GroupFailed: A process failed, after `wanted.restarts` new beginnings.
    """
    _check(call)
    size = int(wanted.workers)
    resume: tuple[int, str] | None = None
    callbacks = [callback for callback in keras.tree.flatten(call["callbacks"]) if callback is not None]

    def kept(epoch: int, path: str) -> None:
        nonlocal resume
        resume = (epoch, path)

    for attempt in range(wanted.restarts + 1):
        launcher = _launcher(wanted)
        with _arrays_apart(launcher.shares_files) as keep:
            sent = _sent((conduct, model, {**call, "callbacks": callbacks}, Surroundings.now()), keep)
            job = {
                "backend": keras.config.backend(),
                "path": sys.path,
                "options": {**asdict(wanted), "workers": size, "launcher": "auto", "restarts": 0},
                "is_terminal": {name: getattr(sys, name).isatty() for name in ("stdout", "stderr")},
                "watches": _watches(callbacks),
                "resume": resume,
            }
            try:
                answer = Supervisor(launcher, size, kept).run(job, sent.data)
            except GroupFailed as failure:
                if attempt == wanted.restarts:
                    raise
                print(
                    f"flatout: {failure}\nflatout: beginning again, {attempt + 1} of {wanted.restarts}", file=sys.stderr
                )
                continue
            history, reports, surroundings = sent.take_back(answer)
        surroundings.put()
        for report in reports:
            record(replace(report, reasons=(*report.reasons, reason("group", size, launcher.name))))
        return history
    raise AssertionError


def fit_part(job: dict[str, Any], data: bytes, group: Group | None, line: Line) -> bytes:
    """What a worker process does with a job; returns its answer."""
    from flatout.seam.sent_objects import Received

    received = Received(data, _load_array)
    conduct, model, call, surroundings = received.things
    surroundings.put(in_group=True)
    workers = engine_for(job["backend"]).devices if group is not None and group.divides_itself else 1
    wanted = options(**{**job["options"], "workers": workers, "force": True})
    if group is None:
        with wanted:
            history = conduct("fit", model, (), call)
    else:
        line.is_busy = lambda: group.is_alone
        callbacks = call["callbacks"] if group.is_first else []
        if job["watches"] != "flags":
            callbacks = [*callbacks, _stand_in(job["watches"])]
        with contextlib.ExitStack() as stack:
            stack.enter_context(wanted)
            saves = stack.enter_context(_saves_noted(call["callbacks"]))
            begin = functools.partial(_resume, model, job["resume"])
            saved = functools.partial(_tell_saves, line, saves)
            stack.enter_context(following(model, group, job["watches"], begin, saved))
            if not group.divides_itself:
                stack.enter_context(divided(model, group))
            history = conduct("fit", model, (), {**call, "callbacks": callbacks})
    if job["rank"]:
        return b""
    return received.answer((history, recorded()[-1:], Surroundings.now()))


def _launcher(wanted: Options) -> Launcher:
    if wanted.launcher != "ray":
        return LocalLauncher()
    from .ray_launcher import RayLauncher

    return RayLauncher()


def _check(call: dict[str, Any]) -> None:
    for name in ("x", "validation_data"):
        value = call.get(name)
        if isinstance(value, types.GeneratorType) or is_dataset(value, "tf_dataset"):
            raise InvalidOption(
                f"workers= sends the data to other processes, and a {type(value).__name__} cannot be sent. Received: "
                f"{name}={value!r}. Pass arrays, files or a keras.utils.PyDataset, or train with workers=1."
            )
    if isinstance(call["callbacks"], keras.callbacks.CallbackList):
        raise InvalidOption(
            "workers= sends callbacks to another process. Received: a CallbackList. Pass a list of callbacks."
        )


def _sent(things: Any, keep: Any) -> Any:
    try:
        from flatout.seam.sent_objects import Sent
    except ImportError as error:
        raise MissingExtra(
            "workers= sends the model to other processes, for which cloudpickle is missing. Install it with: "
            "pip install 'flatout[cluster]'"
        ) from error
    try:
        return Sent(things, keep)
    except Exception as error:
        _, model, call, _ = things
        for name, value in (("the model", model), *call.items()):
            try:
                Sent(value, keep)
            except Exception as cause:
                raise InvalidOption(
                    f"workers= sends a fit to other processes, and {name} cannot be sent. Received: "
                    f"{type(value).__name__}: {type(cause).__name__}: {cause}"
                ) from cause
        raise error


@contextlib.contextmanager
def _arrays_apart(shares_files: bool) -> Iterator[Callable[[np.ndarray], Any]]:
    """Large arrays as files that all processes map, so that there is one copy of them on a machine."""
    with tempfile.TemporaryDirectory(prefix="flatout-arrays-") as folder:
        paths: dict[int, tuple[str, np.ndarray]] = {}

        def keep(array: np.ndarray) -> Any:
            if not shares_files or array.nbytes < _SMALLEST_FILE or array.dtype.hasobject:
                return None
            if id(array) not in paths:
                path = str(Path(folder) / f"{len(paths)}.npy")
                np.save(path, array)
                # Held, so that nothing else gets its address.
                paths[id(array)] = (path, array)
            return paths[id(array)][0]

        yield keep


def _load_array(path: str) -> np.ndarray:
    # As writable as the user's, and still one copy for all until somebody writes.
    return np.asarray(np.load(path, mmap_mode="c"))


def _watches(callbacks: list[Any]) -> str:
    """What callbacks may change, as `following` takes it."""
    if services_of(callbacks) - {"none", "chunk"}:
        return "batches"
    found = keras.callbacks.CallbackList(callbacks)
    return "epochs" if look_at_variables(found) else "flags"


def _stand_in(watches: str) -> Any:
    """A callback of the user's kind: with it all processes run their steps in the same pieces."""

    class StandIn(keras.callbacks.Callback):  # type: ignore[misc]
        if watches == "batches":

            def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
                return

            def on_test_batch_end(self, batch: int, logs: Any = None) -> None:
                return

    return StandIn()


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


def _tell_saves(line: Line, saves: list[str], epoch: int) -> None:
    if saves:
        line.send("kept", epoch, saves[-1])
        saves.clear()


def _resume(model: Any, resume: tuple[int, str] | None) -> None:
    """Go on after the epoch that a `ModelCheckpoint` has kept, unless a `BackupAndRestore` has seen to it."""
    if resume is not None and not first_epoch(model, 0):
        model.load_weights(resume[1])
        put_first_epoch(model, resume[0] + 1)
