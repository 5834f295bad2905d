"""Calls a function as soon as a module has been imported, by whomever; imports nothing itself.

Keras reads `KERAS_BACKEND` when it is imported, and scripts set it first. So we may not import Keras for them:
a finder at the head of `sys.meta_path` lets the other finders do their work and adds one call at the end.
"""

from __future__ import annotations

import importlib.util
import sys
import threading
from collections.abc import Callable, Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

from .import_collections import set_aside
from .notice import tell

Callback = Callable[[ModuleType], None]

_callbacks: dict[str, Callback] = {}


def call_after_import(name: str, callback: Callback) -> None:
    """Call `callback(module)` after the module's next import, or at once if it is there already."""
    _callbacks[name] = callback
    if _finder not in sys.meta_path:
        sys.meta_path.insert(0, _finder)
    module = sys.modules.get(name)
    # A module that is still being imported has no contents yet.
    if module is not None and not getattr(module.__spec__, "_initializing", False):
        _call(name, module)


def forget(name: str) -> None:
    """Take back `call_after_import(name, ...)`."""
    _callbacks.pop(name, None)
    if not _callbacks and _finder in sys.meta_path:
        sys.meta_path.remove(_finder)


def _call(name: str, module: ModuleType) -> None:
    callback = _callbacks.get(name)
    if callback is None:
        return
    try:
        callback(module)
    except Exception as error:  # The user's import has succeeded and must stay so.
        tell(f"could not be switched on after `import {name}`: {type(error).__name__}: {error}. Stock Keras runs.")


class _Finder:
    """Finds watched modules through the other finders."""

    def __init__(self) -> None:
        self._searching = threading.local()

    def find_spec(self, name: str, path: Sequence[str] | None = None, target: Any = None) -> ModuleSpec | None:
        # We ask all finders, ourselves among them; and another tool's finder of this kind asks us in turn.
        if name not in _callbacks or getattr(self._searching, "now", False):
            return None
        self._searching.now = True
        try:
            spec = importlib.util.find_spec(name)
        finally:
            self._searching.now = False
        if spec is not None and spec.loader is not None:
            _call_after_execution(spec.loader, name)
        return spec


_finder: Any = _Finder()


def _call_after_execution(loader: Any, name: str) -> None:
    """Extend this one loader instead of wrapping it: resources, sources and pickles of loaders keep working."""
    execute = loader.exec_module

    def exec_module(module: ModuleType) -> None:
        with set_aside():
            execute(module)
        del loader.exec_module
        _call(name, module)

    # Python cuts a run of importlib's frames out of the traceback of a failing import; ours shall go with them.
    exec_module.__code__ = exec_module.__code__.replace(co_filename="<frozen importlib._bootstrap>")
    loader.exec_module = exec_module
