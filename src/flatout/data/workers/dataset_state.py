"""What the attributes of a dataset are like, to tell which of them have changed."""

from __future__ import annotations

import hashlib
import pickle
from dataclasses import dataclass
from typing import Any

import numpy as np

# Larger arrays of a dataset without epoch hooks are taken for unchanged if they are where they were.
LARGE = 16 * 2**20


def state_of(dataset: Any) -> dict[str, Any]:
    """By attribute, a value that compares equal as long as the attribute is unchanged."""
    has_hooks = _has_hooks(dataset)
    return {name: _fingerprint(value, has_hooks) for name, value in vars(dataset).items()}


def _has_hooks(dataset: Any) -> bool:
    from keras.utils import PyDataset

    names = ("on_epoch_begin", "on_epoch_end")
    return any(getattr(getattr(dataset, name), "__func__", None) is not getattr(PyDataset, name) for name in names)


def _fingerprint(value: Any, has_hooks: bool) -> Any:
    arrays: list[pickle.PickleBuffer] = []
    try:
        digest = hashlib.sha256(pickle.dumps(value, protocol=5, buffer_callback=arrays.append))
    except Exception:
        # Unlike anything else if it may have changed unseen, else like itself.
        return object() if has_hooks else _Identity(value)
    for array in arrays:
        memory = np.frombuffer(array.raw(), np.uint8)
        if memory.nbytes > LARGE and not has_hooks:
            digest.update(f"{memory.ctypes.data}:{memory.nbytes}".encode())
        else:
            digest.update(memory.data)
    return digest.digest()


@dataclass(frozen=True, eq=False)
class _Identity:
    value: Any

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Identity) and other.value is self.value

    def __hash__(self) -> int:
        return id(self.value)
