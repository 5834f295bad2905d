"""The user's callbacks as a measurement calls them: copies, for what happens at batches, or at epochs, too."""

from __future__ import annotations

import copy
import sys
import time
from typing import Any

from flatout.base.when_used import keras
from flatout.seam.keras_names import is_of_keras

from .written_files import written_files

_AT_BATCHES = ("on_train_batch_begin", "on_train_batch_end", "on_batch_begin", "on_batch_end")
_AT_EPOCHS = ("on_epoch_begin", "on_epoch_end")


# Files that callbacks have written by a measurement, and which callback.
Written = dict[str, str]


def users_callbacks(
    callbacks: Any, shared: list[Any], written: Written, at_epochs: bool = False
) -> tuple[list[Any], list[str]]:
    """The callbacks of the user's own classes that act on batches, or on epochs, and why others are left out.

    Those of Keras write files, restore weights or log to services; with a class of the user's own, that is code of
    theirs which a measurement has to run to time it: on a copy. The copies have the model and the arrays in `shared` in
    common with the user's. Files that they write come to be in `written`.
    """
    if isinstance(callbacks, keras.callbacks.CallbackList):
        callbacks = callbacks.callbacks
    hooks = (*_AT_BATCHES, *_AT_EPOCHS) if at_epochs else _AT_BATCHES
    found, left_out = [], []
    for callback in keras.tree.flatten(callbacks if callbacks is not None else []):
        if callback is None or not _acts_on(callback, hooks):
            continue
        name = type(callback).__name__
        if _is_of_library(callback):
            left_out.append(f"{name}, whose work was not timed: it would have written files or logs.")
            continue
        try:
            found.append(_watched(copy.deepcopy(callback, {id(one): one for one in shared}), written, at_epochs))
        except Exception as error:
            left_out.append(f"{name}, which could not be copied ({type(error).__name__}: {error}).")
    return found, left_out


def _watched(callback: Any, written: Written, at_epochs: bool) -> Any:
    """A callback that passes on to another what happens, and keeps when that was and how long it took."""

    class Watched(keras.callbacks.Callback):
        def __init__(self) -> None:
            super().__init__()
            self.calls: list[tuple[float, float]] = []
            self.epoch_calls: list[tuple[float, float]] = []

        def set_model(self, model: Any) -> None:
            super().set_model(model)
            callback.set_model(model)

        def set_params(self, params: Any) -> None:
            super().set_params(params)
            callback.set_params(params)

        def on_train_begin(self, logs: Any = None) -> None:
            callback.on_train_begin(logs)

        def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
            self._timed(self.epoch_calls, callback.on_epoch_begin, epoch, logs)

        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
            if at_epochs:
                self._timed(self.epoch_calls, callback.on_epoch_end, epoch, logs)

        def _timed(self, calls: list[tuple[float, float]], hook: Any, number: int, logs: Any) -> None:
            with written_files() as files:
                began = time.perf_counter()
                hook(number, logs)
                calls.append((began, time.perf_counter() - began))
            for file in files:
                written.setdefault(file, type(callback).__name__)

    class WatchedAtBatches(Watched):
        def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
            self._timed(self.calls, callback.on_train_batch_begin, batch, logs)

        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            self._timed(self.calls, callback.on_train_batch_end, batch, logs)

    # Keras makes logs for batches only if there is a callback that has such a hook.
    return WatchedAtBatches() if _acts_on(callback, _AT_BATCHES) else Watched()


def _is_of_library(callback: Any) -> bool:
    """Whether it is a callback of Keras' or another library, or derives from one; what it does is its own business."""
    if type(callback) is keras.callbacks.LambdaCallback:
        return False
    bases = [base for base in type(callback).__mro__ if base not in (keras.callbacks.Callback, object)]
    files = [getattr(sys.modules.get(base.__module__), "__file__", None) or "" for base in bases]
    return any(is_of_keras(base) for base in bases) or any("site-packages" in file for file in files)


def _acts_on(callback: Any, hooks: tuple[str, ...]) -> bool:
    def function(hook: Any) -> Any:
        return getattr(hook, "__func__", hook)

    # Of a LambdaCallback they are attributes.
    plain = keras.callbacks.Callback
    return any(function(getattr(callback, name)) is not getattr(plain, name) for name in hooks)
