"""What Keras' callbacks know of themselves beside their public methods, and how its lists of callbacks serve them."""

from __future__ import annotations

from typing import Any

from .keras_names import is_of_keras

# What Keras has put together, and what we put around it.
_KNOWN_CODE = ("keras", __name__.partition(".")[0])


def has_users_code(callback: Any) -> bool:
    """Whether a method of a callback, or of a list of them, is the user's: its class', or put onto class or object.

    So is the function that a `LearningRateScheduler` calls.
    """
    if not is_of_keras(type(callback)):
        return True
    names = (name for name in dir(type(callback)) if not name.startswith("__"))
    methods = (getattr(callback, name) for name in names if callable(getattr(type(callback), name)))
    schedule = getattr(callback, "schedule", None)
    return not all(map(_is_known, methods)) or (schedule is not None and not _is_known(schedule))


def _is_known(method: Any) -> bool:
    # Not by `__module__`, which `functools.wraps` copies.
    function = getattr(method, "__func__", method)
    module = str(getattr(function, "__globals__", {}).get("__name__", ""))
    return module.partition(".")[0] in _KNOWN_CODE


def is_default_hook(callback: Any, name: str) -> bool:
    """Whether a callback's hook is Keras' empty one."""
    from keras.src.utils.python_utils import is_default

    return bool(is_default(getattr(callback, name)))


def may_profile(tensor_board: Any) -> bool:
    """Whether a `TensorBoard` callback may trace batches."""
    return bool(getattr(tensor_board, "_should_trace", True))


def says_when_it_saves(checkpoint: Any) -> bool:
    """Whether a checkpoint callback can be asked `saves_after`."""
    return hasattr(checkpoint, "_should_save_on_batch")


def saves_after(checkpoint: Any, batch: int) -> bool:
    """Whether a checkpoint callback saves after a batch; asking counts the batch."""
    return bool(checkpoint._should_save_on_batch(batch))


def is_silent_in_fit(progress_bar: Any) -> bool:
    """Whether a progress bar shows nothing of an evaluation, since it runs inside `fit`."""
    return bool(progress_bar._called_in_fit)


def is_served_by_threads(callbacks: Any, mode: str) -> bool:
    """Whether a `CallbackList` calls hooks of `"train"`, `"test"` or `"predict"` steps on other threads (on jax)."""
    return bool(getattr(callbacks, f"_async_{mode}", False))


def wait_for_threads(callbacks: Any) -> None:
    """Wait until what a `CallbackList` gave to other threads is done."""
    callbacks._flush_futures()


def as_python_numbers(logs: Any) -> dict[str, Any]:
    """Logs as Keras tells them to callbacks: flat, with Python numbers for what is a number."""
    from keras.src.utils.python_utils import pythonify_logs

    return pythonify_logs(logs)  # type: ignore[no-any-return]
