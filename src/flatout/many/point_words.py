"""Points in words, by which a folder of finished models knows them: the same in every process."""

from __future__ import annotations

import hashlib
import json
import re
from typing import Any

import numpy as np

from flatout.base.errors import InvalidOption
from flatout.base.when_used import keras

_ADDRESS = re.compile(r" at 0x[0-9a-f]+")


def in_words(value: Any) -> str:
    """A part of a point: functions and classes by their names, arrays by what is in them.

    Raises:
        InvalidOption: The value has no words of its own, or others in another process.
    """
    if type(value) is dict:
        return repr({key: _Words(one) for key, one in value.items()})
    if type(value) in (list, tuple):
        return repr(type(value)(map(_Words, value)))
    if name := getattr(value, "__qualname__", None):
        return str(name)
    if np.ndim(value) and hasattr(value, "__array__"):
        array = np.ascontiguousarray(keras.ops.convert_to_numpy(value) if keras.ops.is_tensor(value) else value)
        if array.dtype.hasobject:
            return in_words(array.tolist())
        return f"{array.dtype}{array.shape} {hashlib.sha256(array.tobytes()).hexdigest()[:20]}"
    if hasattr(value, "get_config") and not isinstance(value, type):
        return json.dumps(keras.saving.serialize_keras_object(value), sort_keys=True, default=in_words)
    words = repr(value)
    if _ADDRESS.search(words):
        raise InvalidOption(
            "`checkpoint` knows points by what is printed of them, which another process must print, too. Received: "
            f"{words}. Give {type(value).__name__} a __repr__, or have `build` make it of numbers and words."
        )
    return words


class _Words:
    def __init__(self, value: Any):
        self._words = in_words(value)

    def __repr__(self) -> str:
        return self._words
