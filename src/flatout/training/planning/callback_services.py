"""How the batch hooks of callbacks must be served: what the planner asks beforehand and the ledger acts upon.

Whole epochs run in one dispatch when nobody looks at batches. A callback that does look gets one of four services:
it is told at the end of each chunk (the progress bar), it is told of every step afterwards (it reads logs alone), the
chunk is cut where it acts (checkpoints every N batches), or every step is a chunk of its own (anything of the user's).
"""

from __future__ import annotations

from typing import Any, Literal

from flatout.base.when_used import keras
from flatout.engines.contract import Task
from flatout.seam.callbacks import is_default_hook, may_profile, says_when_it_saves

Service = Literal["none", "chunk", "replay", "cut", "step"]

_HOOKS = {
    "train": ("on_batch_begin", "on_batch_end", "on_train_batch_begin", "on_train_batch_end"),
    "test": ("on_test_batch_begin", "on_test_batch_end"),
    "predict": ("on_predict_batch_begin", "on_predict_batch_end"),
}


def services_of(callbacks: Any) -> set[Service]:
    """How the batch hooks of the user's callbacks of a fit must be served; whatever `fit` takes for callbacks."""
    # What is no callback is left for Keras to complain of.
    each = keras.tree.flatten(getattr(callbacks, "callbacks", callbacks))
    return {service_for(callback, "train") for callback in each if isinstance(callback, keras.callbacks.Callback)}


def service_for(callback: Any, mode: Task) -> Service:
    """How a callback's batch hooks must be served."""
    hooks = [name for name in _HOOKS[mode] if not is_default_hook(callback, name)]
    if not hooks:
        return "none"
    known = keras.callbacks
    if _hooks_are_those_of(callback, hooks, known.ProgbarLogger):
        return "chunk"
    if _hooks_are_those_of(callback, hooks, known.TerminateOnNaN):
        return "replay"
    if _hooks_are_those_of(callback, hooks, known.TensorBoard):
        return "step" if may_profile(callback) else "replay"
    for name in ("ModelCheckpoint", "BackupAndRestore", "OrbaxCheckpoint"):
        if hasattr(known, name) and _hooks_are_those_of(callback, hooks, getattr(known, name)):
            if not says_when_it_saves(callback):
                return "step"
            return "none" if callback.save_freq == "epoch" else "cut"
    return "replay" if getattr(callback, "async_safe", False) and mode != "predict" else "step"


def _hooks_are_those_of(callback: Any, hooks: list[str], kind: type) -> bool:
    """Whether a callback's batch hooks are a Keras class' own, overridden neither in a subclass nor on the instance."""
    return isinstance(callback, kind) and all(
        getattr(getattr(callback, name), "__func__", None) is getattr(kind, name) for name in hooks
    )
