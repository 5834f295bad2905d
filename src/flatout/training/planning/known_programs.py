"""Which programs were compiled here before, so that a cache on disk has them: an empty file for each.

A program is told by what can be seen of a model before it is traced, which is less than all that it depends on: an
estimate hangs on it, and nothing else.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from typing import Any

from flatout.base import disk_cache
from flatout.seam.layers import all_layers, plain_attributes

_MOST_KEPT = 2000
# Noted by this process, in whichever folder it was.
_noted: set[tuple[str | None, str, str]] = set()


def name_of_program(model: Any, *surroundings: object) -> str:
    """What the programs of a model's step are known by; `surroundings` are what else they are compiled for."""
    loss, optimizer = getattr(model, "loss", None), getattr(model, "optimizer", None)
    parts = [_seen(part) for part in (*all_layers(model), optimizer)]
    told = (parts, loss if isinstance(loss, str) else _type_of(loss), surroundings)
    return hashlib.sha256(repr(told).encode()).hexdigest()


def is_known(name: str, side: str) -> bool:
    """Whether a program was compiled by this side: stock Keras or an engine."""
    try:
        return (disk_cache.folder("programs") / f"{name}.{side}").exists()
    except OSError:
        return False


def note(name: str, side: str) -> None:
    """Remember a program that was compiled, if there is a place for that."""
    key = (os.environ.get("XDG_CACHE_HOME"), name, side)
    if key in _noted:
        return
    _noted.add(key)
    with contextlib.suppress(OSError):
        file = disk_cache.folder("programs") / f"{name}.{side}"
        is_new = not file.exists()
        file.touch()
        if is_new:
            disk_cache.trim(file.parent, _MOST_KEPT)


def _seen(part: Any) -> tuple[object, ...]:
    settings = sorted((name, value) for name, value in plain_attributes(part).items() if name != "name")
    shapes = [tuple(variable.shape) for variable in getattr(part, "variables", ())]
    return _type_of(part), settings, shapes


def _type_of(value: Any) -> str:
    return str(getattr(value, "__qualname__", type(value).__qualname__))
