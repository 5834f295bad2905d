"""The one registry of what we put over foreign methods and functions: who put it, in which order, and how it goes.

Of each method that is patched, the class (or module) gets one function of ours, which calls the wrappers of all owners,
from the outermost owner to Keras' own method, whoever came first. When the last owner is gone, the class has exactly
the attribute that it had, or none where it had inherited it.

Others patch the same methods. What they put over ours stays when ours goes: our function, which theirs calls, then
passes every call on, and is itself taken away as soon as theirs is. If we come again meanwhile, we come on top.
"""

from __future__ import annotations

import contextlib
import contextvars
import functools
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Literal

# The second one's wrapper asks what the context at hand wants.
Owner = Literal["stock methods", "here", "tables", "vectorize"]
# From the outermost to the innermost.
_ORDER: tuple[Owner, ...] = ("stock methods", "here", "tables", "vectorize")

Around = Callable[..., Any]
# A class or module, and the name of one of its functions.
Target = tuple[Any, str]
_INHERITED = object()
_lock = threading.RLock()
_replacements: contextvars.ContextVar[Mapping[Target, Callable[..., Any]]] = contextvars.ContextVar(
    "replacements", default=MappingProxyType({})
)
_wanted: Counter[Target] = Counter()


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
            layer.remove_wrapper(owner)
        _tidy()


@contextlib.contextmanager
def replaced_here(replacements: Mapping[Target, Callable[..., Any]]) -> Iterator[None]:
    """Meanwhile, have other functions in the place of these, in this thread and context alone."""
    with _lock:
        for owner, name in replacements:
            vars(owner)[name]  # All of them are found before the first is replaced.
        for target in replacements:
            layer = _open_layer(*target)
            layer.set({**layer.wrappers, "here": functools.partial(_as_wanted_here, target)})
        _wanted.update(list(replacements))
    token = _replacements.set({**_replacements.get(), **replacements})
    try:
        yield
    finally:
        _replacements.reset(token)
        with _lock:
            _wanted.subtract(list(replacements))
            for layer in _layers:
                if not _wanted[layer.cls, layer.name]:
                    layer.remove_wrapper("here")
            _tidy()


def _as_wanted_here(target: Target, inner: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    replacement = _replacements.get().get(target)
    return inner(*args[1:], **kwargs) if replacement is None else replacement(*args, **kwargs)


def is_replaced_here(owner: Any, name: str) -> bool:
    return (owner, name) in _replacements.get()


def is_applied(owner: Owner) -> bool:
    with _lock:
        return any(owner in layer.wrappers for layer in _layers)


def beneath(cls: Any, name: str) -> Any:
    """A method or function as its class or module has it without us."""
    with _lock:
        under = [layer for layer in _layers if (layer.cls, layer.name) == (cls, name) and layer.wrappers]
        return under[-1].unpatched if under else getattr(cls, name)


class _Layer:
    """Our function in the place of a method, and what was there before."""

    def __init__(self, cls: Any, name: str):
        self.cls = cls
        self.name = name
        self.before: Any = vars(cls).get(name, _INHERITED)
        self.unpatched = getattr(cls, name)
        self.wrappers: dict[Owner, Around] = {}
        # The outermost wrapper, and what it is put around.
        self._outermost: tuple[Around, Callable[..., Any]] = (_pass_on, self._next)

        @functools.wraps(self.unpatched)
        def method(*args: Any, **kwargs: Any) -> Any:
            around, inner = self._outermost
            return around(functools.partial(inner, *args[:1]), *args, **kwargs)

        self.method = method
        setattr(cls, name, method)

    def _next(self, *args: Any, **kwargs: Any) -> Any:
        if self.before is _INHERITED:
            # Not what the class would inherit: the class of the object may have more ancestors.
            return getattr(super(self.cls, args[0]), self.name)(*args[1:], **kwargs)
        return self.before(*args, **kwargs)

    def set(self, wrappers: dict[Owner, Around]) -> None:
        self.wrappers = wrappers
        outer, *others = [wrappers[owner] for owner in _ORDER if owner in wrappers] or [_pass_on]
        inner: Callable[..., Any] = self._next
        for around in reversed(others):
            inner = _wrapped(around, inner)
        # At once, for calls of other threads.
        self._outermost = outer, inner

    def remove_wrapper(self, owner: Owner) -> None:
        self.set({other: around for other, around in self.wrappers.items() if other != owner})

    @property
    def is_on_top(self) -> bool:
        return vars(self.cls).get(self.name) is self.method

    def remove(self) -> None:
        if self.before is _INHERITED:
            delattr(self.cls, self.name)
        else:
            setattr(self.cls, self.name, self.before)


def _wrapped(around: Around, inner: Callable[..., Any]) -> Callable[..., Any]:
    def method(*args: Any, **kwargs: Any) -> Any:
        return around(functools.partial(inner, *args[:1]), *args, **kwargs)

    return method


def _pass_on(inner: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Nobody's wrapper: called where a foreign patch still calls our function, or has just left it behind."""
    with _lock:
        _tidy()
    return inner(*args[1:], **kwargs)


# In the order in which they came; of one method there are several only where others came in between.
_layers: list[_Layer] = []


def _open_layer(cls: Any, name: str) -> _Layer:
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
