"""Points in words, by which a folder of finished models knows them: the same in every process."""

from __future__ import annotations

import dataclasses
import enum
import functools
import hashlib
import json
import re
from collections.abc import Iterable
from typing import Any

import numpy as np

from flatout.base.errors import InvalidOption
from flatout.base.when_used import keras

_ADDRESS = re.compile(r" at 0x[0-9a-f]+")


def in_words(value: Any, named: list[Any]) -> str:
    """A part of a point: functions and classes by their names, arrays by what is in them.

    Args:
        value: It.
        named: Gets what is known by its name alone.

    Raises:
        InvalidOption: The value has no words of its own, or others in another process.
    """
    part = functools.partial(_Words, named=named)
    if type(value) is dict:
        return repr({key: part(one) for key, one in value.items()})
    if type(value) in (list, tuple):
        return repr(type(value)(map(part, value)))
    if type(value) in (set, frozenset):
        # Their order is another one in another process.
        return f"{{{', '.join(sorted(in_words(one, named) for one in value))}}}"
    if isinstance(value, functools.partial):
        return f"partial{part((value.func, value.args, value.keywords))!r}"
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = {field.name: part(getattr(value, field.name)) for field in dataclasses.fields(value)}
        return f"{type(value).__qualname__}{fields!r}"
    if name := getattr(value, "__qualname__", None):
        named.append(value)
        return str(name)
    if isinstance(value, enum.Enum):
        return f"{type(value).__qualname__}.{value.name}"
    if hasattr(value, "__array__") and not isinstance(value, np.generic):
        return _array_in_words(value, named)
    if hasattr(value, "get_config"):
        return json.dumps(
            keras.saving.serialize_keras_object(value), sort_keys=True, default=lambda one: in_words(one, named)
        )
    words = repr(value)
    if _ADDRESS.search(words):
        raise InvalidOption(
            "`checkpoint` knows points by what is printed of them, which another process must print, too. Received: "
            f"{words}. Have `build` make it of numbers and words."
        )
    return words


class _Words:
    def __init__(self, value: Any, named: list[Any]):
        self._words = in_words(value, named)

    def __repr__(self) -> str:
        return self._words


def _array_in_words(value: Any, named: list[Any]) -> str:
    array = np.asarray(keras.ops.convert_to_numpy(value) if keras.ops.is_tensor(value) else value)
    # Of a frame.
    labels = [list(one) for name in ("columns", "index") if isinstance(one := getattr(value, name, None), Iterable)]
    if array.dtype.hasobject:
        return in_words([array.tolist(), *labels], named)
    if array.ndim == 0:
        return f"{array.dtype} {array.item()!r}"
    content = array.tobytes() + repr(labels).encode() if labels else array.tobytes()
    return f"{array.dtype}{array.shape} {hashlib.sha256(content).hexdigest()[:20]}"
