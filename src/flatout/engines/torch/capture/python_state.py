"""Python containers and attributes that the user's code can change, as they were before a trial of the step.

What is gone when the step has returned was its own. What lives on and has changed is an effect, and is put back.
"""

from __future__ import annotations

import array
import gc
import operator
import pickle
import random
import sys
import threading
import types
from collections import OrderedDict, deque
from collections.abc import Iterable
from typing import Any

import numpy as np

GENERATORS = (np.random.Generator, np.random.RandomState, random.Random)
KEPT = (list, dict, set, deque, bytearray, array.array, *GENERATORS, np.ndarray)
PLAIN = (bool, int, float, complex, str, bytes, type(None))
ABSENT = object()


class PythonState:
    """Remembers things before they are changed, in one or more recordings of a step.

    Attributes:
        things: All of them by their ids, which stay their own as long as they are here. Nobody else may hold them, or
            those that the step has made itself could not be told.
    """

    def __init__(self) -> None:
        self.things: dict[int, Any] = {}
        # What others remember of these things, by their ids.
        self.tables: tuple[dict[int, Any], ...] = ()
        self._names: dict[int, str] = {}
        # What each recording has found, by the ids of the things.
        self._contents: list[dict[int, Any]] = [{}]
        self._attributes: list[dict[int, dict[str, Any]]] = [{}]

    def keep_contents(self, thing: Any, name: str) -> None:
        """Remember a container, array or generator."""
        if id(thing) not in self._contents[-1]:
            self._contents[-1][id(thing)] = contents_of(thing)
            self.things[id(thing)] = thing
            self._names.setdefault(id(thing), name)

    def keep_attributes(self, thing: Any, attributes: frozenset[str] | None, name: str) -> None:
        """Remember attributes of an object, class or module; all of them if `attributes` is None."""
        known = self._attributes[-1].setdefault(id(thing), {})
        for attribute in attributes if attributes is not None else list(getattr(thing, "__dict__", ())):
            if attribute not in known:
                known[attribute] = attribute_of(thing, attribute)
        self.things[id(thing)] = thing
        self._names.setdefault(id(thing), name)

    def begin_recording(self) -> None:
        """Look at changes from here on; `restore` still goes back to the very first state."""
        self._contents.append({})
        self._attributes.append({})

    def end_recording(self) -> None:
        """Forget what the step has made itself, and its tensors with it."""
        tables = (self.things, *self._contents, *self._attributes, self._names, *self.tables)
        while dead := [key for key in self.things if _references(self.things, key) <= _ALONE]:
            for key in dead:
                for table in tables:
                    table.pop(key, None)

    def change(self) -> str | None:
        """What the last recording changed, in words."""
        if self._changes():
            # A cycle can keep what the step has made itself.
            gc.collect()
            self.end_recording()
        return next(iter(self._changes()), None)

    def restore(self) -> None:
        """Put everything back as it was before the first recording."""
        for contents, attributes in zip(self._contents[::-1], self._attributes[::-1], strict=True):
            for key, before in attributes.items():
                for attribute, value in before.items():
                    if not same(attribute_of(self.things[key], attribute), value):
                        _set_attribute(self.things[key], attribute, value)
            for key, copy in contents.items():
                if not same_contents(self.things[key], copy):
                    _refill(self.things[key], copy)

    def _changes(self) -> list[str]:
        found = []
        for key, copy in self._contents[-1].items():
            if not same_contents(self.things[key], copy):
                found.append(f"it changes the {type(self.things[key]).__name__} {self._names[key]}")
        for key, before in self._attributes[-1].items():
            thing, name = self.things[key], self._names[key]
            found += [f"it sets {name}.{a}" for a, value in before.items() if not same(attribute_of(thing, a), value)]
        return found


def _references(things: dict[int, Any], key: int) -> int:
    return sys.getrefcount(things[key])


_ALONE = _references({0: object()}, 0)


def same(a: Any, b: Any) -> bool:
    if a is b:
        return True
    if type(a) is not type(b):
        return False
    if isinstance(a, tuple):
        return len(a) == len(b) and all(map(same, a, b))
    # Not by ==: NaN is NaN, and -0.0 is not 0.0.
    return isinstance(a, (*PLAIN, np.generic)) and repr(a) == repr(b)


def _bits(generator: Any) -> Any:
    return generator.bit_generator if isinstance(generator, np.random.Generator) else generator._bit_generator


def contents_of(thing: Any) -> Any:
    if isinstance(thing, dict):
        return [*thing, *thing.values()]
    if isinstance(thing, (set, frozenset)):
        return set(thing)
    if isinstance(thing, bytearray):
        return bytes(thing)
    if isinstance(thing, np.ndarray):
        return np.array(thing)
    if isinstance(thing, random.Random):
        return thing.getstate()
    if isinstance(thing, GENERATORS):
        return pickle.dumps(_bits(thing).state)
    if isinstance(thing, types.FunctionType):
        cells = [attribute_of(cell, "cell_contents") for cell in thing.__closure__ or ()]
        return [thing.__code__, *(thing.__defaults__ or ()), *(thing.__kwdefaults__ or {}).values(), *cells]
    if isinstance(thing, (list, tuple, deque, array.array)):
        return list(thing)
    if isinstance(thing, threading.local):
        # This thread's own; another's differs.
        return [vars(thing)]
    # Of objects made in C, and of those without a dict of attributes.
    state = getattr(thing, "__dict__", None)
    return [item for item in gc.get_referents(thing) if item is not state]


def items_of(thing: Any) -> Iterable[Any]:
    """The objects among the contents."""
    if isinstance(thing, np.ndarray):
        return thing.ravel().tolist() if thing.dtype == object else ()
    return () if isinstance(thing, (bytearray, array.array, *GENERATORS)) else contents_of(thing)


def same_contents(thing: Any, copy: Any) -> bool:
    now = thing if isinstance(thing, list) else contents_of(thing)
    if isinstance(now, list):
        return len(now) == len(copy) and (all(map(operator.is_, now, copy)) or all(map(same, now, copy)))
    if isinstance(now, np.ndarray):
        return now.shape == copy.shape and now.tobytes() == copy.tobytes()
    return now == copy


def _refill(thing: Any, copy: Any) -> None:
    if isinstance(thing, random.Random):
        thing.setstate(copy)
    elif isinstance(thing, GENERATORS):
        _bits(thing).state = pickle.loads(copy)
    elif isinstance(thing, np.ndarray):
        np.copyto(thing, copy)
    elif isinstance(thing, bytearray):
        thing[:] = copy
    elif isinstance(thing, array.array):
        thing[:] = array.array(thing.typecode, copy)
    elif isinstance(thing, list):
        # By the base class's own method, here and below: Keras' tracked containers override it.
        list.__setitem__(thing, slice(None), copy)
    else:
        base: Any = next(base for base in (OrderedDict, dict, set, deque) if isinstance(thing, base))
        base.clear(thing)
        if isinstance(thing, dict):
            base.update(thing, zip(copy[: len(copy) // 2], copy[len(copy) // 2 :], strict=True))
        else:
            (base.extend if base is deque else base.update)(thing, copy)


def attribute_of(thing: Any, attribute: str) -> Any:
    """An attribute of the thing itself, or what a cell holds, without calling any code of its class."""
    if isinstance(thing, types.CellType):
        try:
            return thing.cell_contents
        except ValueError:
            return ABSENT
    state = getattr(thing, "__dict__", {})
    if attribute in state:
        return state[attribute]
    is_slot = isinstance(getattr(type(thing), attribute, None), types.MemberDescriptorType)
    return getattr(thing, attribute, ABSENT) if is_slot else ABSENT


def _set_attribute(thing: Any, attribute: str, value: Any) -> None:
    state = getattr(thing, "__dict__", None)
    # Keras' layers watch what is assigned to them.
    if isinstance(state, dict):
        if value is ABSENT:
            state.pop(attribute, None)
        else:
            state[attribute] = value
    elif value is ABSENT:
        delattr(thing, attribute)
    else:
        setattr(thing, attribute, value)
