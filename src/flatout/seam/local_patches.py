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
    with _lock:
        # All of them are found before the first is replaced.
        new = {(owner, name): vars(owner)[name] for owner, name in replacements if not _wanted[owner, name]}
        for (owner, name), original in new.items():
            setattr(owner, name, _asking((owner, name), original))
        _originals.update(new)
        _wanted.update(list(replacements))
    token = _replacements.set({**_replacements.get(), **replacements})
    try:
        yield
    finally:
        _replacements.reset(token)
        with _lock:
            for owner, name in replacements:
                _wanted[owner, name] -= 1
                if not _wanted[owner, name]:
                    setattr(owner, name, _originals.pop((owner, name)))


def unpatched(owner: Any, name: str) -> Any:
    """A function of a class or module as it is where nobody replaces it."""
    with _lock:
        return _originals.get((owner, name), vars(owner)[name])


def _asking(target: Target, original: Any) -> Callable[..., Any]:
    @functools.wraps(original)
    def function(*args: Any, **kwargs: Any) -> Any:
        return _replacements.get().get(target, original)(*args, **kwargs)

    return function
