"""What a function can get at by the names in its bytecode, when it begins.

Globals, variables of outer functions, attributes of all that it can reach by these names from its arguments, and the
contents of containers among them: more than it reads or changes, and never less. All of it is guarded; what the user's
code could change is also remembered as it was.
"""

from __future__ import annotations

import functools
import gc
import sys
import types
import weakref
from collections import deque
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import torch

from .code_names import CodeNames, arguments_of
from .python_state import ABSENT, GENERATORS, KEPT, PLAIN, PythonState, attribute_of
from .read_guards import ReadGuards
from .user_code import COMPUTING

# Nothing can change in them, or what changes is seen otherwise: a recording keeps tensors, and reads them at each step.
_SETTLED: tuple[type, ...] = (*PLAIN, np.generic, np.dtype, range, slice, frozenset)
_SETTLED += (torch.Tensor, torch.dtype, torch.device, torch.layout)
# What Keras' modules hold of these stays.
_DEFINED_ONCE = (types.FunctionType, types.BuiltinFunctionType, types.ModuleType, type)
_DESCRIPTORS = (*_DEFINED_ONCE, property, classmethod, staticmethod, functools.cached_property)
# Where torch keeps attributes of a module.
_TABLES_OF_MODULES = ("_modules", "_parameters", "_buffers")
# Larger containers are compared, but their items are not looked into; still larger ones would take too long.
_MOST_ITEMS = 1000
_MOST_COMPARED_ITEMS, _MOST_COMPARED_BYTES = 100_000, 1 << 24
# C types of the standard library's other modules keep state that nobody can see: contexts, files, queues.
_TRANSPARENT = frozenset({"builtins", "types", "typing", "operator", "_operator", "re", "datetime", "decimal", "uuid"})
_TRANSPARENT |= {"weakref", "functools", "collections", "_thread", "_abc", "_struct"}


class SideEffect(BaseException):
    """The step is about to do what a replay would not; no `Exception`, so that the user's code cannot swallow it."""


class Reach:
    """Tells the guards, and of the user's code `effects`, what each function that begins can get at."""

    def __init__(self, effects: PythonState) -> None:
        self.guards = ReadGuards(effects.things)
        effects.tables = self.guards.tables
        self._effects = effects
        self._followed: set[tuple[int, int]] = set()
        self._searched: set[int] = set()
        self._keeps_effects = True

    def enter(self, frame: types.FrameType, names: CodeNames, outer: Iterable[str] = ()) -> None:
        """A function begins; `outer` are its variables of functions that are no longer running."""
        space, code = frame.f_globals, frame.f_code
        for name in names.globals:
            value = space.get(name, ABSENT)
            if value is not ABSENT and (names.is_users or not isinstance(value, _DEFINED_ONCE)):
                self.guards.keep_name(space, name)
                self._reach(value, name, names)
        variables = frame.f_locals
        for name in code.co_freevars:
            self._reach(variables.get(name), name, names)
        for name in arguments_of(code):
            value = variables.get(name)
            if not (isinstance(value, Iterator) and names.is_users and _is_of_a_call(value, variables)):
                self._reach(value, name, names)
        if names.is_users and outer and id(code) not in self._searched:
            self._searched.add(id(code))
            for function in gc.get_referrers(code):
                for name, cell in zip(code.co_freevars, getattr(function, "__closure__", None) or (), strict=False):
                    if name in outer:
                        self.guards.keep_name(cell, "cell_contents")

    def returned(self, value: Any, names: CodeNames) -> None:
        """A function has returned this to one with these names, which may change what was made for it."""
        self._keeps_effects = False
        self._reach(value, "what is returned", names)
        self._keeps_effects = True

    def end_recording(self) -> None:
        """Forget where it has been."""
        self._followed.clear()

    def _follow(self, thing: Any, names: CodeNames) -> None:
        self._effects.things[id(thing)] = thing
        self._followed.add((id(names), id(thing)))

    def _reach(self, thing: Any, label: str, names: CodeNames) -> None:
        if isinstance(thing, _SETTLED) or (id(names), id(thing)) in self._followed:
            return
        if isinstance(thing, tuple):
            for item in thing[:_MOST_ITEMS]:
                self._reach(item, f"{label}[...]", names)
        elif isinstance(thing, KEPT):
            self._reach_contents(thing, label, names)
        elif isinstance(thing, (types.MethodType, types.BuiltinMethodType)):
            if not isinstance(thing.__self__, types.ModuleType):
                self._reach(thing.__self__, label, names)
        elif isinstance(thing, functools.partial):
            for part in (thing.func, thing.args, thing.keywords):
                self._reach(part, label, names)
        elif isinstance(thing, (memoryview, weakref.ReferenceType)):
            self._reach(thing.obj if isinstance(thing, memoryview) else thing(), label, names)
        elif isinstance(thing, type):
            for base in thing.__mro__:
                self._reach_class_attributes(base, names)
        elif isinstance(thing, torch.nn.Module) or not _only_computes(thing):
            if names.is_users:
                _refuse_hidden_state(thing, label, names)
            self._reach_attributes(thing, label, names)

    def _reach_contents(self, thing: Any, label: str, names: CodeNames) -> None:
        is_array = isinstance(thing, np.ndarray)
        if thing.nbytes > _MOST_COMPARED_BYTES if is_array else _length(thing) > _MOST_COMPARED_ITEMS:
            if names.is_users:
                raise SideEffect(f"it may read or change {label}, too large to be compared ({names.place})")
            return
        self._follow(thing, names)
        self.guards.keep_container(thing)
        if names.is_users and self._keeps_effects:
            self._effects.keep_contents(thing, label)
        if isinstance(thing, (list, dict, set, deque)) and len(thing) <= _MOST_ITEMS:
            for item in list(thing.values() if isinstance(thing, dict) else thing):
                self._reach(item, f"{label}[...]", names)

    def _reach_attributes(self, thing: Any, label: str, names: CodeNames) -> None:
        state = getattr(thing, "__dict__", None) or {}
        # Of Keras' objects those that it names: what all of them hold changes with every epoch.
        is_any = names.any_attribute and _root(type(thing).__module__) != "keras"
        held = set(state) if is_any else names.attributes & state.keys()
        if held or names.stored_attributes != frozenset():
            self._follow(thing, names)
        if names.is_users and self._keeps_effects and names.stored_attributes != frozenset():
            self._effects.keep_attributes(thing, names.stored_attributes, label)
        for name in held:
            self.guards.keep_name(thing, name)
        for name in held:
            self._reach(state[name], f"{label}.{name}", names)
        for table in _TABLES_OF_MODULES if isinstance(thing, torch.nn.Module) else ():
            for name in names.attributes & state.get(table, {}).keys():
                self.guards.keep_name(state[table], name)
                self._reach(state[table][name], f"{label}.{name}", names)
        for base in type(thing).__mro__[:-1]:
            for name in (names.attributes & vars(base).keys()) - held:
                if isinstance(vars(base)[name], types.MemberDescriptorType):
                    self.guards.keep_name(thing, name)
                    self._follow(thing, names)
                    self._reach(attribute_of(thing, name), f"{label}.{name}", names)
            for name in self._reach_class_attributes(base, names):
                # An attribute of its own would come before the class's.
                self.guards.keep_name(thing, name)

    def _reach_class_attributes(self, cls: type, names: CodeNames) -> list[str]:
        if _only_computes(cls) or _root(cls.__module__) == "keras":
            return []
        if names.is_users and self._keeps_effects and names.stored_attributes != frozenset():
            stored = vars(cls).keys() if names.stored_attributes is None else names.stored_attributes & vars(cls).keys()
            self._effects.keep_attributes(cls, frozenset(stored), cls.__name__)
        attributes = names.attributes & vars(cls).keys()
        found = [name for name in attributes if not isinstance(vars(cls)[name], _DESCRIPTORS) and name[:2] != "__"]
        for name in found:
            self.guards.keep_name(cls, name)
            self._reach(vars(cls)[name], f"{cls.__name__}.{name}", names)
        return found


def _refuse_hidden_state(thing: Any, label: str, names: CodeNames) -> None:
    if isinstance(thing, Iterator):
        raise SideEffect(f"it uses the iterator {label} ({names.place})")
    if isinstance(thing, functools._lru_cache_wrapper):
        raise SideEffect(f"it calls {label}, whose results are kept from call to call ({names.place})")
    is_made_in_c = not type(thing).__flags__ & 1 << 9 and not hasattr(thing, "__dict__")
    if is_made_in_c and type(thing).__module__ not in _TRANSPARENT:
        raise SideEffect(f"it uses {label}, of whose type {type(thing).__name__} no change can be seen ({names.place})")


def _length(container: Any) -> int:
    return 0 if isinstance(container, GENERATORS) else len(container)


def _is_of_a_call(iterator: Iterator[Any], variables: Any) -> bool:
    """Whether an argument was made for the call: nothing but running functions, and their `variables`, holds it."""
    return all(holder is variables or isinstance(holder, types.FrameType) for holder in gc.get_referrers(iterator))


def _root(module: Any) -> str:
    return str(module).partition(".")[0]


def _only_computes(thing: Any) -> bool:
    """Whether a module, or the class of an object, is of a package in which the user sets nothing."""
    if isinstance(thing, types.ModuleType):
        return _root(thing.__name__) in COMPUTING or _root(thing.__name__) in sys.stdlib_module_names
    root = _root((thing if isinstance(thing, type) else type(thing)).__module__)
    return root != "keras" and root in COMPUTING
