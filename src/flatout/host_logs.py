"""Logs on the host, waited for where a Ctrl-C is heard.

Keras' `pythonify_logs` takes every error for a value that is no number, KeyboardInterrupt among them. Whoever lets it
wait for the device, as a compiled epoch does for most of its time, loses the user's Ctrl-C there.
"""

from __future__ import annotations

from typing import Any

from keras import ops, tree
from keras.src.utils import python_utils


def on_host(logs: Any) -> Any:
    """The logs with NumPy arrays for tensors."""
    return tree.map_structure(_fetched, logs)


def _fetched(value: Any) -> Any:
    if not ops.is_tensor(value):
        return value
    try:
        return ops.convert_to_numpy(value)
    except Exception:  # Keras leaves such a value as it is.
        return value


def as_numbers(logs: Any) -> dict[str, Any]:
    """The logs as Keras tells them to callbacks: flat, with Python numbers."""
    numbers: dict[str, Any] = python_utils.pythonify_logs(on_host(logs))
    return numbers
