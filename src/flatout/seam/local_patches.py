"""Functions of foreign classes and modules, replaced for what runs in this thread and context alone.

While anybody wants that, the class or module has a function of ours in the place of its own, which asks the context
variable below; everybody else gets the original. When nobody wants it any more, the original is back.
"""

from __future__ import annotations

import contextlib
import contextvars
import functools
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import Any

Target = tuple[Any, str]
_replacements: contextvars.ContextVar[Mapping[Target, Callable[..., Any]]] = contextvars.ContextVar(
    "replacements", default=MappingProxyType({})
)
_originals: dict[Target, Any] = {}
_wanted: Counter[Target] = Counter()
_lock = threading.Lock()


@contextlib.contextmanager
def replaced_here(replacements: Mapping[Target, Callable[..., Any]]) -> Iterator[None]:
    """Meanwhile, have other functions in the place of `(class or module, name)`, in this context alone."""
    with contextlib.ExitStack() as stack:
        for target in replacements:
            stack.enter_context(_wanting(target))
        token = _replacements.set({**_replacements.get(), **replacements})
        try:
            yield
        finally:
            _replacements.reset(token)


def unpatched(owner: Any, name: str) -> Any:
    """A function of a class or module as it is where nobody replaces it."""
    with _lock:
        return _originals.get((owner, name), vars(owner)[name])


@contextlib.contextmanager
def _wanting(target: Target) -> Iterator[None]:
    """Meanwhile, have a function in place that asks the context."""
    owner, name = target
    with _lock:
        if not _wanted[target]:
            _originals[target] = vars(owner)[name]
            setattr(owner, name, _asking(target, _originals[target]))
        _wanted[target] += 1
    try:
        yield
    finally:
        with _lock:
            _wanted[target] -= 1
            if not _wanted[target]:
                setattr(owner, name, _originals.pop(target))


def _asking(target: Target, original: Any) -> Callable[..., Any]:
    @functools.wraps(original)
    def function(*args: Any, **kwargs: Any) -> Any:
        return _replacements.get().get(target, original)(*args, **kwargs)

    return function
