"""Watches the user's Python while a step is recorded, and stops at what a replay would lose.

Stock Keras runs that Python at every step, a replay never. Calls with effects (files, logs, clocks, random numbers)
are stopped before they happen. Changes of containers and attributes happen in the trial, are found by comparison,
and are put back. What is not the user's code is not looked into: Keras and torch compute.
"""

from __future__ import annotations

import itertools
import sys
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch

from .code_names import CodeNames
from .python_state import GENERATORS, KEPT, PythonState
from .reach import Reach, SideEffect
from .user_code import Kind, is_free_of_effects, kind_of, user_packages_of

_BUILTINS_WITH_EFFECTS = frozenset({"print", "open", "input", "breakpoint", "globals", "__import__"})
_ARRAY_WRITERS = frozenset({"tofile", "dump"})
_MOST_ARRAY_BYTES = 1 << 26


class Watch(PythonState):
    """Watches the code that runs inside `with watch:`.

    Attributes:
        reach: What that code can get at, with the guards on it.
        has_seen_others: Whether functions of the user's ran, or modules of other packages.
    """

    has_seen_others = False

    def __init__(self, model: Any) -> None:
        super().__init__()
        self._user_packages = user_packages_of(model)
        self.reach = Reach(self)
        self._kinds: dict[str, Kind] = {}
        self._names_of: dict[int, CodeNames] = {}
        self._previous: Any = None
        self._start: types.FrameType | None = None

    def __enter__(self) -> None:
        self.begin_recording()
        self._start, self._previous = sys._getframe(1), sys.getprofile()
        sys.setprofile(self._hook())

    def __exit__(self, *_: object) -> None:
        previous, self._previous, self._start = self._previous, None, None
        sys.setprofile(previous if callable(previous) else None)
        # cProfile's hook is no function; it goes on where it was.
        if hasattr(previous, "enable"):
            previous.enable()

    def _hook(self) -> Any:
        kinds, computing, configured, user = self._kinds, Kind.COMPUTING, Kind.CONFIGURED, Kind.USER

        # Called some 50,000 times in a recording of three dense layers.
        def hook(frame: types.FrameType, event: str, argument: Any) -> None:
            kind = kinds.get(frame.f_code.co_filename)
            if event == "call":
                if kind is configured:
                    self.reach.enter(frame, self._loaded_by(frame.f_code))
                elif kind is not computing:
                    self._called(frame, kind)
            elif event == "c_call":
                if kind is user:
                    self._called_c(frame, argument)
                elif kind is configured and isinstance(getattr(argument, "__self__", None), GENERATORS):
                    self.keep_contents(argument.__self__, _place(frame).strip())
            elif event == "return" and frame.f_back is not None and kinds.get(frame.f_back.f_code.co_filename) is user:
                self.reach.returned(argument, self._loaded_by(frame.f_back.f_code))

        return hook

    def _loaded_by(self, code: types.CodeType) -> CodeNames:
        found = self._names_of.get(id(code))
        if found is None:
            found = self._names_of[id(code)] = CodeNames(code, self._kinds.get(code.co_filename) is Kind.USER)
        return found

    def _called(self, frame: types.FrameType, kind: Kind | None) -> None:
        code = frame.f_code
        if kind is None:
            kind = self._kinds[code.co_filename] = kind_of(code.co_filename, self._user_packages)
        if kind is Kind.USER:
            if self._is_users(frame):
                self._enter(frame)
        elif kind is Kind.CONFIGURED:
            self.reach.enter(frame, self._loaded_by(code))
        elif kind is Kind.WRITER:
            raise SideEffect(f"it calls {_name_of(frame)}{_place(frame.f_back)}")
        elif kind is not Kind.COMPUTING:
            receiver = frame.f_locals.get(code.co_varnames[0]) if code.co_argcount else None
            caller = self._first_caller(frame) if kind is Kind.OTHER else frame.f_back
            if caller is None or not self._is_users(caller):
                # A module of another package for torch, which Keras or torch calls.
                if isinstance(receiver, torch.nn.Module):
                    self.has_seen_others = True
                    self.reach.enter(frame, self._loaded_by(code))
            elif kind is Kind.OTHER:
                raise SideEffect(f"it calls {_name_of(frame)}{_place(caller)}")
            elif isinstance(receiver, KEPT):
                # A method of a deque, a Counter or a list of a layer.
                self.keep_contents(receiver, _place(caller).strip())

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
        if isinstance(receiver, KEPT):
            if getattr(receiver, "nbytes", 0) <= _MOST_ARRAY_BYTES:
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
        self.has_seen_others = True
        code = frame.f_code
        facts = self._loaded_by(code)
        for name in facts.stored_globals:
            raise SideEffect(f"it sets the global {name}{_place(frame)}")
        outer = {name for name in code.co_freevars if not self._is_defined_by_caller(frame, name)}
        for name in facts.stored_free & outer:
            raise SideEffect(f"it sets the outer variable {name}{_place(frame)}")
        if any(name == "random" or frame.f_globals.get(name) is np.random for name in code.co_names):
            # NumPy's functions are methods made by Cython, whose calls no profiler hears of.
            self.keep_contents(np.random.mtrand._rand, _place(frame).strip())
        self.reach.enter(frame, facts, outer)


def _callers(frame: types.FrameType) -> Iterator[types.FrameType]:
    while frame.f_back is not None:
        frame = frame.f_back
        yield frame


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
