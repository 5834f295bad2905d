"""Logs on the host, waited for where a Ctrl-C is heard.

Keras' `pythonify_logs` takes every error for a value that is no number, KeyboardInterrupt among them. Whoever lets it
wait for the device, as a compiled epoch does for most of its time, loses the user's Ctrl-C there.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from flatout.seam.callbacks import as_python_numbers

_ON_HOST = (np.ndarray, np.generic, float, int)


def on_host(logs: Any) -> Any:
    """The logs with NumPy arrays for tensors."""
    if isinstance(logs, dict) and all(isinstance(value, _ON_HOST) for value in logs.values()):
        return logs  # As those of every step of a chunk: a walk through each would take 11 us.
    import keras

    return keras.tree.map_structure(_fetched, logs)


def _fetched(value: Any) -> Any:
    from keras import ops

    if not ops.is_tensor(value):
        return value
    try:
        return ops.convert_to_numpy(value)
    except Exception:  # Keras leaves such a value as it is.
        return value


def as_numbers(logs: Any) -> dict[str, Any]:
    """The logs as Keras tells them to callbacks: flat, with Python numbers."""
    return as_python_numbers(on_host(logs))
