"""A fit by several processes: what goes to them, and what comes back."""

from __future__ import annotations

import contextlib
import sys
import tempfile
import types
from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np

from flatout.base.errors import GroupFailed, InvalidOption, MissingExtra, reason
from flatout.base.options import Options
from flatout.base.report import record
from flatout.base.when_used import keras
from flatout.seam.adapters import is_dataset
from flatout.seam.keras_names import is_of_keras
from flatout.seam.stock_methods import Conduct
from flatout.seam.trainers import check_compiled

from .carried_state import CarriedState
from .following import Effects
from .local_launcher import GroupLauncher, LocalLauncher
from .supervisor import Supervisor

# Smaller arrays go with everything else.
_SMALLEST_FILE = 1 << 20


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
    _check(model, call)
    size = int(wanted.workers)
    resume: tuple[int, str] | None = None
    callbacks = [callback for callback in keras.tree.flatten(call["callbacks"]) if callback is not None]

    def kept(epoch: int, path: str) -> None:
        nonlocal resume
        resume = (epoch, path)

    for attempt in range(wanted.restarts + 1):
        launcher = _launcher(wanted)
        with _arrays_apart(launcher.shares_files) as keep:
            sent = _sent((conduct, model, {**call, "callbacks": callbacks}, CarriedState.now()), keep)
            job = {
                "backend": keras.config.backend(),
                "path": sys.path,
                "options": {**asdict(wanted), "workers": size, "launcher": "auto", "restarts": 0},
                "is_terminal": {name: getattr(sys, name).isatty() for name in ("stdout", "stderr")},
                "effects": Effects.of(callbacks),
                "resume": resume,
            }
            supervisor = Supervisor(launcher, size, kept)
            try:
                answer = supervisor.run(job, sent.data)
            except GroupFailed as failure:
                if attempt == wanted.restarts:
                    raise
                print(
                    f"flatout: {failure}\nflatout: beginning again, {attempt + 1} of {wanted.restarts}", file=sys.stderr
                )
                continue
            history, reports, state = sent.take_back(answer)
        state.put()
        for report in reports:
            record(replace(report, reasons=(*report.reasons, reason("group", size, launcher.name))))
        if supervisor.is_interrupted:
            raise KeyboardInterrupt
        return history
    raise AssertionError


def _launcher(wanted: Options) -> GroupLauncher:
    if wanted.launcher != "ray":
        return LocalLauncher()
    from .ray_launcher import RayLauncher

    return RayLauncher()


def _check(model: Any, call: dict[str, Any]) -> None:
    check_compiled(model, "fit")
    step = getattr(model.train_step, "__func__", model.train_step)
    if keras.config.backend() != "jax" and not is_of_keras(step):
        raise InvalidOption(
            "workers= averages gradients where Keras' own train_step applies them, and cannot see what another does "
            f"with them before, on this backend. Received: {type(model).__name__} with a train_step of its own. Train "
            "it with workers=1, or on jax; a compute_loss of its own is no obstacle."
        )
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
        from flatout.seam.processes.sent_objects import Sent
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
