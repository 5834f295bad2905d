"""Watches the user's Python while a step is recorded, and stops at what a replay would lose.

Stock Keras runs that Python at every step, a replay never. Calls with effects (files, logs, clocks, random numbers)
are stopped before they happen. Changes of containers and attributes happen in the trial, are found by comparison,
and are put back. What is not the user's code is not looked into: Keras and torch compute.
"""

from __future__ import annotations

import dis
import itertools
import sys
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from .python_state import CONTAINERS, KEPT, OPAQUE, PythonState
from .user_code import COMPUTING, Kind, is_free_of_effects, kind_of, user_packages_of

_BUILTINS_WITH_EFFECTS = frozenset({"print", "open", "input", "breakpoint", "globals"})
_ARRAY_WRITERS = frozenset({"tofile", "dump"})
_SET_ANY_ATTRIBUTE = frozenset({"setattr", "delattr", "__setattr__", "__dict__", "vars"})
# How far names are followed: `self.statistics.counts` are two steps.
_DEPTH = 3
# Larger containers are remembered without looking into their items.
_MOST_ITEMS = 1000
_MOST_ARRAY_BYTES = 1 << 26


class SideEffect(BaseException):
    """The step is about to do what a replay would not; no `Exception`, so that the user's code cannot swallow it."""


class Watch(PythonState):
    """Watches the code that runs inside `with watch:`; idle if all the model's parts are Keras' own."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self._user_packages = user_packages_of(model)
        self._kinds: dict[str, Kind] = {}
        self._facts: dict[int, _Facts] = {}
        self._previous: Any = None
        self._start: types.FrameType | None = None

    def __enter__(self) -> None:
        if self._user_packages is None:
            return
        self.begin_recording()
        self._start, self._previous = sys._getframe(1), sys.getprofile()
        sys.setprofile(self._hook())

    def __exit__(self, *_: object) -> None:
        if self._user_packages is None:
            return
        previous, self._previous, self._start = self._previous, None, None
        sys.setprofile(previous if callable(previous) else None)
        # cProfile's hook is no function; it goes on where it was.
        if hasattr(previous, "enable"):
            previous.enable()

    def _hook(self) -> Any:
        kinds, computing, user = self._kinds, Kind.COMPUTING, Kind.USER

        # Called some 50,000 times in a recording of three dense layers.
        def hook(frame: types.FrameType, event: str, argument: Any) -> None:
            if event == "call":
                kind = kinds.get(frame.f_code.co_filename)
                if kind is not computing:
                    self._called(frame, kind)
            elif event == "c_call" and kinds.get(frame.f_code.co_filename) is user:
                self._called_c(frame, argument)

        return hook

    def _called(self, frame: types.FrameType, kind: Kind | None) -> None:
        code = frame.f_code
        if kind is None:
            kind = self._kinds[code.co_filename] = kind_of(code.co_filename, self._user_packages or frozenset())
        if kind is Kind.USER:
            if self._is_users(frame):
                self._enter(frame)
        elif kind is Kind.WRITER:
            raise SideEffect(f"it calls {_name_of(frame)}{_place(frame.f_back)}")
        elif kind is Kind.OTHER:
            caller = self._first_caller(frame)
            if caller is not None and self._is_users(caller):
                raise SideEffect(f"it calls {_name_of(frame)}{_place(caller)}")
        elif kind is not Kind.COMPUTING and code.co_argcount and frame.f_back and self._is_users(frame.f_back):
            # A method of a deque, a Counter or a list of a layer.
            receiver = frame.f_locals.get(code.co_varnames[0])
            if isinstance(receiver, CONTAINERS):
                self.keep_contents(receiver, _place(frame.f_back).strip())

    def _is_users(self, frame: types.FrameType) -> bool:
        code = frame.f_code
        # Importing a module runs its code once, in any case.
        if self._kinds.get(code.co_filename) is not Kind.USER or code.co_name == "<module>":
            return False
        # The methods of dataclasses have no file.
        return not (code.co_filename == "<string>" and is_free_of_effects(frame.f_globals.get("__name__", "")))

    def _first_caller(self, frame: types.FrameType) -> types.FrameType | None:
        """Who calls, through context managers and partial functions of the standard library."""
        callers = (c for c in _callers(frame) if self._kinds.get(c.f_code.co_filename) is not Kind.STANDARD)
        return next(callers, None)

    def _is_defined_by_caller(self, frame: types.FrameType, name: str) -> bool:
        """Whether a variable belongs to a function that the step is running now."""
        for caller in itertools.takewhile(lambda caller: caller is not self._start, _callers(frame)):
            if name in caller.f_code.co_cellvars and _contains(caller.f_code, frame.f_code):
                return True
        return False

    def _called_c(self, frame: types.FrameType, function: Any) -> None:
        if not self._is_users(frame):
            return
        receiver, name = getattr(function, "__self__", None), function.__name__
        if isinstance(receiver, CONTAINERS):
            self.keep_contents(receiver, _place(frame).strip())
            return
        if isinstance(receiver, np.ndarray):
            if receiver.nbytes <= _MOST_ARRAY_BYTES:
                self.keep_contents(receiver, _place(frame).strip())
            has_effect, module = name in _ARRAY_WRITERS, "numpy"
        elif isinstance(receiver, (types.ModuleType, type(None))):
            module = function.__module__ or getattr(receiver, "__name__", "")
            has_effect = name in _BUILTINS_WITH_EFFECTS if module == "builtins" else not is_free_of_effects(module)
        else:
            module = _defining_module(receiver, name)
            has_effect = not is_free_of_effects(module)
        if has_effect:
            raise SideEffect(f"it calls {name if module == 'builtins' else f'{module}.{name}'}{_place(frame)}")

    def _enter(self, frame: types.FrameType) -> None:
        """Remember what a function of the user can reach by the names in it."""
        code = frame.f_code
        facts = self._facts.get(id(code))
        if facts is None:
            facts = self._facts[id(code)] = _Facts(code)
        for name in facts.stored_globals:
            raise SideEffect(f"it sets the global {name}{_place(frame)}")
        for name in facts.stored_free:
            if not self._is_defined_by_caller(frame, name):
                raise SideEffect(f"it sets the outer variable {name}{_place(frame)}")
        variables = frame.f_locals
        seen: set[int] = set()
        for name in code.co_freevars:
            self._reach(variables.get(name), name, facts, seen, _DEPTH, True)
        for name in facts.loaded_globals:
            self._reach(frame.f_globals.get(name), name, facts, seen, _DEPTH, True)
        for name in _arguments(code):
            self._reach(variables.get(name), name, facts, seen, _DEPTH, False)
        if facts.stored_attributes != frozenset() and code.co_argcount:
            for cls in type(variables.get(code.co_varnames[0])).__mro__[:-1]:
                held = facts.stored_attributes and facts.stored_attributes & vars(cls).keys()
                if held:
                    self.keep_attributes(cls, held, cls.__name__)

    def _reach(self, thing: Any, name: str, facts: _Facts, seen: set[int], depth: int, is_outside: bool) -> None:
        if isinstance(thing, OPAQUE) or id(thing) in seen:
            return
        seen.add(id(thing))
        if isinstance(thing, KEPT):
            self._reach_contents(thing, name, facts, seen, depth)
            return
        if isinstance(thing, types.ModuleType) and thing.__name__.partition(".")[0] in COMPUTING:
            return
        if is_outside and isinstance(thing, Iterator):
            raise SideEffect(f"it uses the iterator {name} ({facts.place})")
        if facts.stored_attributes != frozenset():
            self.keep_attributes(thing, facts.stored_attributes, name)
        if depth:
            state = getattr(thing, "__dict__", {})
            for attribute in facts.names & state.keys():
                self._reach(state[attribute], f"{name}.{attribute}", facts, seen, depth - 1, True)

    def _reach_contents(self, thing: Any, name: str, facts: _Facts, seen: set[int], depth: int) -> None:
        if isinstance(thing, np.ndarray) and thing.nbytes > _MOST_ARRAY_BYTES:
            if facts.stores_items:
                raise SideEffect(f"it may change the large array {name} ({facts.place})")
            return
        if not self.keep_contents(thing, name) or not depth:
            return
        if isinstance(thing, (list, dict)) and len(thing) <= _MOST_ITEMS:
            for item in list(thing.values() if isinstance(thing, dict) else thing):
                self._reach(item, f"{name}[...]", facts, seen, depth - 1, False)


class _Facts:
    """What the bytecode of a function says about it; `code` is kept so that its id stays its own."""

    def __init__(self, code: types.CodeType) -> None:
        found: dict[str, set[Any]] = {}
        for instruction in dis.get_instructions(code):
            is_in_place = instruction.opname == "BINARY_OP" and instruction.argrepr.endswith("=")
            found.setdefault("IN_PLACE" if is_in_place else instruction.opname, set()).add(instruction.argval)

        def operands(*names: str) -> frozenset[str]:
            return frozenset().union(*(found.get(name, ()) for name in names))

        self.code = code
        self.place = f"{Path(code.co_filename).name}:{code.co_firstlineno}"
        self.names = frozenset(code.co_names)
        self.loaded_globals = operands("LOAD_GLOBAL", "LOAD_NAME")
        self.stored_globals = operands("STORE_GLOBAL", "DELETE_GLOBAL")
        self.stored_free = operands("STORE_DEREF", "DELETE_DEREF") & set(code.co_freevars)
        # None if it may be any.
        self.stored_attributes = None if self.names & _SET_ANY_ATTRIBUTE else operands("STORE_ATTR", "DELETE_ATTR")
        self.stores_items = not found.keys().isdisjoint({"STORE_SUBSCR", "STORE_SLICE", "DELETE_SUBSCR", "IN_PLACE"})


def _callers(frame: types.FrameType) -> Iterator[types.FrameType]:
    while frame.f_back is not None:
        frame = frame.f_back
        yield frame


def _arguments(code: types.CodeType) -> tuple[str, ...]:
    has_rest = bool(code.co_flags & 0x04) + bool(code.co_flags & 0x08)
    return code.co_varnames[: code.co_argcount + code.co_kwonlyargcount + has_rest]


def _contains(outer: types.CodeType, inner: types.CodeType) -> bool:
    nested = [constant for constant in outer.co_consts if isinstance(constant, types.CodeType)]
    return any(code is inner or _contains(code, inner) for code in nested)


def _defining_module(receiver: Any, name: str) -> str:
    """The module of the class that has the method."""
    bases = receiver.__mro__ if isinstance(receiver, type) else type(receiver).__mro__
    return next((base.__module__ for base in bases if name in vars(base)), bases[0].__module__)


def _name_of(frame: types.FrameType) -> str:
    return f"{frame.f_globals.get('__name__', '?')}.{frame.f_code.co_qualname}"


def _place(frame: types.FrameType | None) -> str:
    return f" ({Path(frame.f_code.co_filename).name}:{frame.f_lineno})" if frame else ""
