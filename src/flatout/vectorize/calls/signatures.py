"""Calls of the functions that stand for those of libraries: each declares its arguments, and is given them so."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

from flatout.vectorize.arrays.algebra import on_host
from flatout.vectorize.arrays.lifted_values import Host, Items, Known, Refused, Tensor
from flatout.vectorize.arrays.lifting import Lifting
from flatout.vectorize.arrays.shaping import tensor


def called(lift: Lifting, path: str, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """What a function gives for lifted arguments, each as its annotation says; None is as good as not given."""
    signature = _signature(function)
    try:
        given = signature.bind(*args, **kwargs)
    except TypeError as error:
        raise Refused(f"{path}() with arguments that are not known here: {error}.", "FO205") from error
    for name, value in tuple(given.arguments.items()):
        parameter = signature.parameters[name]
        declared = _DECLARED.get(str(parameter.annotation).removesuffix(" | None"), lambda lift, path, value: value)
        if parameter.kind is parameter.VAR_POSITIONAL:
            given.arguments[name] = tuple(declared(lift, path, one) for one in value)
        elif parameter.kind is parameter.VAR_KEYWORD:
            given.arguments[name] = {word: declared(lift, path, one) for word, one in value.items()}
        elif parameter.default is not parameter.empty and isinstance(value, Known) and value.value is None:
            given.arguments[name] = parameter.default
        else:
            given.arguments[name] = declared(lift, path, value)
    return function(*given.args, **given.kwargs)


_signature = functools.cache(inspect.signature)


def _whole(lift: Lifting, path: str, value: Any) -> Tensor:
    made = tensor(lift, value)
    if made.valid is not None or made.is_loose:
        raise Refused(f"{path}() of a selection of elements has no masked form here.", "FO108")
    return made


def _size(lift: Lifting, path: str, value: Any) -> Any:
    if not isinstance(value, (Known, Host)):
        raise Refused(f"{path}() with a size, or a bound, that depends on the data.", "FO108")
    return value


def _plain(lift: Lifting, path: str, value: Any) -> Any:
    if isinstance(value, Items):
        return tuple(_plain(lift, path, one) for one in value.values)
    if not isinstance(value, Known):
        raise Refused(f"{path}() with an argument that depends on the data.")
    return value.value


_DECLARED: dict[str, Callable[[Lifting, str, Any], Any]] = {
    "Tensor": lambda lift, path, value: tensor(lift, value),
    "Read": lambda lift, path, value: on_host(lift, tensor(lift, value)),
    "Whole": _whole,
    "Size": _size,
    "Plain": _plain,
}
