"""The one registry of what we put over methods of Keras' classes: who put it there, in which order, and how it goes.

Of each method that is patched, the class gets one function of ours, which calls the wrappers of all owners, from the
outermost owner to Keras' own method, whoever came first. When the last owner is gone, the class has exactly the
attribute that it had, or none where it had inherited it.

Others patch the same methods. What they put over ours stays when ours goes: our function, which theirs calls, then
passes every call on, and is itself taken away as soon as theirs is. If we come again meanwhile, we come on top.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Literal

Owner = Literal["stock methods", "one call", "tables", "vectorize"]
# From the outermost to the innermost.
_ORDER: tuple[Owner, ...] = ("stock methods", "one call", "tables", "vectorize")

Around = Callable[..., Any]
_INHERITED = object()
_lock = threading.RLock()


@dataclass(frozen=True)
class Patch:
    """A wrapper for a method, called with the method as it is without it, bound, then with `self` and the arguments."""

    cls: type
    name: str
    around: Around


def apply(owner: Owner, patches: Iterable[Patch]) -> None:
    """Put an owner's patches into place, all or none; nothing happens if they are there already."""
    with _lock:
        if is_applied(owner):
            return
        _tidy()
        try:
            for patch in patches:
                layer = _open_layer(patch.cls, patch.name)
                layer.set({**layer.wrappers, owner: patch.around})
        except BaseException:
            undo(owner)
            raise


def undo(owner: Owner) -> None:
    """Take an owner's patches away; those of others stay."""
    with _lock:
        for layer in _layers:
            layer.set({other: around for other, around in layer.wrappers.items() if other != owner})
        _tidy()


def is_applied(owner: Owner) -> bool:
    with _lock:
        return any(owner in layer.wrappers for layer in _layers)


def beneath(cls: type, name: str) -> Any:
    """A method as the class has it without us."""
    with _lock:
        under = [layer for layer in _layers if (layer.cls, layer.name) == (cls, name) and layer.wrappers]
        return under[-1].unpatched if under else getattr(cls, name)


class _Layer:
    """Our function in the place of a method, and what was there before."""

    def __init__(self, cls: type, name: str):
        self.cls = cls
        self.name = name
        self.before: Any = vars(cls).get(name, _INHERITED)
        self.unpatched = getattr(cls, name)
        self.wrappers: dict[Owner, Around] = {}
        # The outermost wrapper, and what it is put around.
        self._outermost: tuple[Around, Callable[..., Any]] = (_pass_on, self._next)

        @functools.wraps(self.unpatched)
        def method(this: Any, *args: Any, **kwargs: Any) -> Any:
            around, inner = self._outermost
            return around(functools.partial(inner, this), this, *args, **kwargs)

        self.method = method
        setattr(cls, name, method)

    def _next(self, this: Any, *args: Any, **kwargs: Any) -> Any:
        if self.before is _INHERITED:
            # Not what the class would inherit: the class of `this` may have more ancestors.
            return getattr(super(self.cls, this), self.name)(*args, **kwargs)
        return self.before(this, *args, **kwargs)

    def set(self, wrappers: dict[Owner, Around]) -> None:
        self.wrappers = wrappers
        outer, *others = [wrappers[owner] for owner in _ORDER if owner in wrappers] or [_pass_on]
        inner: Callable[..., Any] = self._next
        for around in reversed(others):
            inner = _wrapped(around, inner)
        # At once, for calls of other threads.
        self._outermost = outer, inner

    @property
    def is_on_top(self) -> bool:
        return vars(self.cls).get(self.name) is self.method

    def remove(self) -> None:
        if self.before is _INHERITED:
            delattr(self.cls, self.name)
        else:
            setattr(self.cls, self.name, self.before)


def _wrapped(around: Around, inner: Callable[..., Any]) -> Callable[..., Any]:
    def method(this: Any, *args: Any, **kwargs: Any) -> Any:
        return around(functools.partial(inner, this), this, *args, **kwargs)

    return method


def _pass_on(inner: Callable[..., Any], _: Any, *args: Any, **kwargs: Any) -> Any:
    """Nobody's wrapper: called where a foreign patch still calls our function, or has just left it behind."""
    with _lock:
        _tidy()
    return inner(*args, **kwargs)


# In the order in which they came; of one method there are several only where others came in between.
_layers: list[_Layer] = []


def _open_layer(cls: type, name: str) -> _Layer:
    """Our function that is the class' method now, or a new one."""
    for layer in _layers:
        if (layer.cls, layer.name) == (cls, name) and layer.is_on_top:
            return layer
    _layers.append(_Layer(cls, name))
    return _layers[-1]


def _tidy() -> None:
    """Take away what no owner needs, from the latest on; what others have covered has to wait."""
    for layer in reversed(list(_layers)):
        if not layer.wrappers and layer.is_on_top:
            layer.remove()
            _layers.remove(layer)
