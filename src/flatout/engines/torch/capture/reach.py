"""What a function can get at by the names in its bytecode, when it begins.

Globals, variables of outer functions, attributes of all that it can reach by these names from its arguments, and the
contents of containers among them: more than it reads or changes, and never less. All of it is guarded; what the user's
code could change is also remembered as it was.
"""

from __future__ import annotations

import builtins
import functools
import gc
import sys
import types
import weakref
from collections.abc import Iterable, Iterator, Set
from typing import Any

import numpy as np
import torch
from keras.src.backend.common import global_state

from .code_names import CodeNames
from .python_state import KEPT, PLAIN, PythonState, items_of
from .read_guards import ANY, OF_THE_LOOP, ReadGuards, space_of
from .user_code import COMPUTING

# Nothing can change in them, or what changes is seen otherwise: a recording keeps tensors, and reads them at each step.
_SETTLED = {*PLAIN, np.dtype, range, slice, types.CodeType, types.GetSetDescriptorType, types.MemberDescriptorType}
_SETTLED |= {torch.dtype, torch.device, torch.layout, torch.Size, types.WrapperDescriptorType}
# What Keras' modules hold of these stays.
_DEFINED_ONCE = (types.FunctionType, types.BuiltinFunctionType, types.ModuleType, type)
# Where torch keeps attributes of a module, and what it calls around it.
_TABLES_OF_MODULES = ("_modules", "_parameters", "_buffers")
_HOOKS = frozenset({"_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks"})
# Larger containers are compared if nothing in them can change; still larger ones would take too long.
_MOST_ITEMS = 1000
_MOST_COMPARED_BYTES = 1 << 24
_IMMUTABLE = 1 << 8  # Py_TPFLAGS_IMMUTABLETYPE
# C types of the standard library's other modules keep state that nobody can see: contexts, files, queues.
_TRANSPARENT = COMPUTING | {"builtins", "types", "typing", "re", "datetime", "decimal", "uuid", "weakref", "functools"}
_TRANSPARENT |= {"collections", "_collections", "_thread", "_abc", "_struct"}
# Reads what Keras keeps for each thread, under names that are in no bytecode.
_READS_OF_THE_THREAD = global_state.get_global_attribute.__code__
# Operations that Keras makes within a step count, too.
_NAME_COUNTERS = "object_name_uids"
# Their code reads no attribute.
_WITHOUT_STATE = frozenset({"abc", "builtins", "enum", "types", "typing", "_thread", "dataclasses"})


class SideEffect(BaseException):
    """The step is about to do what a replay would not; no `Exception`, so that the user's code cannot swallow it."""


class Reach:
    """Tells the guards, and of the user's code `effects`, what each function that begins can get at."""

    def __init__(self, effects: PythonState) -> None:
        self.guards = ReadGuards(effects.things)
        effects.tables = self.guards.tables
        self._effects = effects
        self._followed: set[tuple[int, int]] = set()
        self._classes: dict[tuple[int, type], tuple[bool, bool]] = {}
        self._codes: set[types.CodeType] = set()

    def enter(self, frame: types.FrameType, names: CodeNames, outer: Iterable[str] = ()) -> None:
        """A function begins; `outer` are its variables of functions that are no longer running."""
        space, code = frame.f_globals, frame.f_code
        if (id(names), id(space)) not in self._followed:
            self._followed.add((id(names), id(space)))
            self._reach_globals(space, names)
        variables = frame.f_locals
        if code is _READS_OF_THE_THREAD:
            asked = {variables["name"]} - {_NAME_COUNTERS}
            self._reach_names(global_state.GLOBAL_STATE_TRACKER, "Keras' state of the thread", names, asked)
            return
        for name in code.co_freevars:
            self._reach(variables.get(name), name, names)
        for name in names.arguments:
            value = variables.get(name)
            if not (names.is_users and isinstance(value, Iterator) and _is_of_a_call(value, variables)):
                self._reach(value, name, names)
        if outer and code not in self._codes:
            # What C code calls, which nobody names: the backward pass of an operation.
            self._codes.add(code)
            for holder in gc.get_referrers(code):
                if isinstance(holder, types.FunctionType):
                    self._reach(holder, code.co_name, names)

    def returned(self, value: Any, names: CodeNames) -> None:
        """A function has returned this to one with these names."""
        self._reach(value, "what is returned", names)

    def end_recording(self) -> None:
        """Forget where it has been."""
        self._followed.clear()
        self._classes.clear()

    def _reach_globals(self, space: dict[str, Any], names: CodeNames) -> None:
        found: Set[str] = names.globals & space.keys()
        if names.is_users:
            self.guards.keep_names(space, names.globals)
            self.guards.keep_names(vars(builtins), names.globals - found)
            package = str(space.get("__package__"))
            for name in names.imports:
                for module in {name, _root(name), f"{package}.{name}", package}:
                    self._reach(sys.modules.get(module), module, names)
        else:
            found = {name for name in found if not isinstance(space[name], _DEFINED_ONCE)}
            self.guards.keep_names(space, found)
        for name in found:
            self._reach(space[name], name, names)

    def _reach(self, thing: Any, label: str, names: CodeNames) -> None:
        cls = type(thing)
        is_known = (id(names), id(thing)) in self._followed
        if is_known or cls in _SETTLED or isinstance(thing, np.generic):
            return
        if thing is global_state.GLOBAL_STATE_TRACKER and not names.is_users:
            return
        if cls is tuple:
            # Not remembered: the arguments of each call would live until the step has ended.
            self._reach_contents(thing, label, names)
        elif isinstance(thing, torch.Tensor):
            if names.is_users:
                self.guards.keep_names(thing, names.attributes & vars(thing).keys())
        elif (
            not _only_computes(thing)
            or isinstance(thing, torch.nn.Module)
            or (names.is_users and cls is not types.FunctionType and _root(cls.__module__) != "flatout")
        ):
            self._effects.things[id(thing)] = thing
            self._followed.add((id(names), id(thing)))
            self._look_into(thing, label, names)

    def _look_into(self, thing: Any, label: str, names: CodeNames) -> None:
        if isinstance(thing, type):
            self._reach_class(thing, names)
            self._reach_class(type(thing), names)
        elif isinstance(thing, types.ModuleType):
            # Of packages in which the user sets nothing, no further than their modules and tables (`sys.modules`).
            only = (types.ModuleType, dict, list) if _only_computes(thing) else (object,)
            self._keep_settable(thing, label, names)
            self._reach_names(thing, label, names, names.attributes, only)
        elif isinstance(thing, weakref.ReferenceType):
            self._reach(thing(), label, names)
        else:
            if names.is_users:
                _refuse_hidden_state(thing, label, names)
            if isinstance(thing, types.FunctionType):
                self._codes.add(thing.__code__)
            is_without_dict = names.is_users and not hasattr(thing, "__dict__")
            if isinstance(thing, KEPT) or _is_made_in_c(type(thing)) or is_without_dict:
                self._reach_contents(thing, label, names)
            self._reach_attributes(thing, label, names)

    def _reach_contents(self, thing: Any, label: str, names: CodeNames) -> None:
        size = thing.nbytes if isinstance(thing, np.ndarray) else sys.getsizeof(thing, 0)
        is_too_large = size > _MOST_COMPARED_BYTES
        changing = [] if is_too_large else [item for item in items_of(thing) if type(item) not in _SETTLED]
        if is_too_large or len(changing) > _MOST_ITEMS:
            if names.is_users:
                raise SideEffect(f"it may read or change {label}, too large to be compared ({names.place})")
            changing = []
        if not isinstance(thing, (tuple, frozenset)) and not is_too_large:
            self.guards.keep_container(thing)
            if names.is_users and isinstance(thing, KEPT):
                self._effects.keep_contents(thing, label)
        for item in changing:
            self._reach(item, f"{label}[...]", names)

    def _reach_attributes(self, thing: Any, label: str, names: CodeNames) -> None:
        cls = type(thing)
        self._keep_settable(thing, label, names)
        wanted: Set[str] = names.attributes
        has_slots, has_unwatched_code = self._reach_class(cls, names)
        if has_slots:
            self._reach_contents(thing, label, names)
        is_any = names.is_users and (names.any_attribute or has_unwatched_code) and _root(cls.__module__) != "keras"
        if is_any:
            wanted = {*wanted, *getattr(thing, "__dict__", ())}
        if isinstance(thing, torch.nn.Module):
            wanted = (wanted | _HOOKS) - OF_THE_LOOP
            for table in _TABLES_OF_MODULES:
                self._reach_names(vars(thing).get(table), label, names, wanted)
        elif is_any:
            wanted |= {ANY}
        self._reach_names(thing, label, names, wanted)

    def _keep_settable(self, thing: Any, label: str, names: CodeNames) -> None:
        if names.is_users and names.stored_attributes != frozenset():
            self._effects.keep_attributes(thing, names.stored_attributes, label)

    def _reach_names(self, owner: Any, label: str, names: CodeNames, wanted: Set[str], only: Any = object) -> None:
        """Guard names of a dict, an object, a class or a module, and go on from what they stand for."""
        space = space_of(owner)
        if space is not None:
            self.guards.keep_names(owner, wanted)
            for name in wanted & space.keys():
                if isinstance(space[name], only):
                    self._reach(space[name], f"{label}.{name}", names)

    def _reach_class(self, cls: type, names: CodeNames) -> tuple[bool, bool]:
        """Guard what a class gives its objects by name; whether it names slots, and whether other code reads them."""
        key, bases = (id(names), cls), cls.__mro__
        if key not in self._classes:
            named = [vars(base)[name] for base in bases for name in names.attributes & vars(base).keys()]
            has_slots = any(isinstance(value, types.MemberDescriptorType) for value in named)
            self._classes[key] = has_slots, any(map(_has_unwatched_code, bases))
            for base in bases:
                self._reach_own_attributes(base, names)
        return self._classes[key]

    def _reach_own_attributes(self, cls: type, names: CodeNames) -> None:
        root = _root(cls.__module__)
        if root == "keras":
            self.guards.keep_names(cls, names.attributes)
        elif root not in COMPUTING and root not in sys.stdlib_module_names:
            self._keep_settable(cls, cls.__name__, names)
            # What C code calls has no name in the bytecode.
            called = {name for name in vars(cls) if name[:2] == "__" and callable(vars(cls)[name])}
            self._reach_names(cls, cls.__name__, names, names.attributes | called)


def _refuse_hidden_state(thing: Any, label: str, names: CodeNames) -> None:
    if isinstance(thing, Iterator):
        raise SideEffect(f"it uses the iterator {label} ({names.place})")
    if isinstance(thing, functools._lru_cache_wrapper):
        raise SideEffect(f"it calls {label}, whose results are kept from call to call ({names.place})")
    for base in type(thing).__mro__:
        if _is_made_in_c(base) and _root(base.__module__) not in _TRANSPARENT:
            raise SideEffect(f"it uses {label}, of whose type {base.__name__} no change can be seen ({names.place})")


def _is_of_a_call(iterator: Iterator[Any], variables: Any) -> bool:
    """Whether an argument was made for the call: nothing but running functions, and their `variables`, holds it."""
    return all(holder is variables or isinstance(holder, types.FrameType) for holder in gc.get_referrers(iterator))


def _is_made_in_c(cls: type) -> bool:
    return bool(cls.__flags__ & _IMMUTABLE)


def _has_unwatched_code(cls: type) -> bool:
    """Whether methods of a class read attributes of its objects, and nobody looks at their names."""
    root = _root(cls.__module__)
    if root in sys.stdlib_module_names:
        return root not in _WITHOUT_STATE
    return _only_computes(cls) and not issubclass(cls, torch.nn.Module)


@functools.lru_cache(8192)
def _root(module: Any) -> str:
    return str(module).partition(".")[0]


def _only_computes(thing: Any) -> bool:
    """Whether a module, function, class or object is of a package in which the user sets nothing."""
    if isinstance(thing, types.ModuleType):
        return _root(thing.__name__) in COMPUTING or _root(thing.__name__) in sys.stdlib_module_names
    if isinstance(thing, types.FunctionType):
        return _root(thing.__globals__.get("__name__")) in COMPUTING
    root = _root((thing if isinstance(thing, type) else type(thing)).__module__)
    return root != "keras" and root in COMPUTING
