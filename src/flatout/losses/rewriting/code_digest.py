"""A digest of all that a function's results depend on: its code, what it closes over, the globals and helpers it uses.

Of libraries that are named by their version only the names count. What cannot be digested for certain is not: an open
file, a generator of random numbers, a model with its thousands of parts.
"""

from __future__ import annotations

import builtins
import enum
import functools
import hashlib
import inspect
import sys
import sysconfig
import types
from collections import namedtuple
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

# Whoever asks for a digest adds the versions of these.
LIBRARIES = (
    "keras", "jax", "jaxlib", "tensorflow", "torch", "numpy", "scipy", "pandas", "polars", "pyarrow", "flatout",
)  # fmt: skip
# Libraries whose objects keep all that they are in their attributes.
_OPEN = ("keras", "flatout", "torch", "abc", "typing", "enum")
_PLAIN = (types.NoneType, bool, int, float, complex, str, bytes, types.EllipsisType)
_BUILT_IN = (
    types.BuiltinFunctionType,
    types.WrapperDescriptorType,
    types.MethodDescriptorType,
    types.MethodWrapperType,
    types.GetSetDescriptorType,
    types.MemberDescriptorType,
    types.ClassMethodDescriptorType,
    np.ufunc,
    type(inspect.getattr_static(namedtuple("_Named", "field"), "field")),
)
# Of a class: where it stands and what Python keeps there.
_NO_PART_OF_A_CLASS = frozenset(
    ("__dict__", "__weakref__", "__doc__", "__module__", "__annotations__", "__firstlineno__", "__static_attributes__")
)
# Py_TPFLAGS_HEAPTYPE and Py_TPFLAGS_IMMUTABLETYPE: classes of Python code have the first alone.
_MADE_AT_RUN_TIME, _IMMUTABLE = 1 << 9, 1 << 8
_MOST_PARTS = 5000
_STANDARD = sysconfig.get_path("stdlib")


class NoDigest(Exception):
    """The results of a function depend on something that has no digest."""


def digest(*values: Any) -> str:
    """A digest that is the same in another process if, and only if, the values mean the same.

    Raises:
        NoDigest: Of one of them, or of what it uses, nobody can tell.
    """
    made = _Digest()
    for value in values:
        made.add(value)
    return made.hash.hexdigest()


class _Digest:
    def __init__(self) -> None:
        self.hash = hashlib.sha256()
        self._seen: dict[Any, int] = {}
        # What was seen is kept: its place in memory must not become another's.
        self._kept: list[Any] = []

    def add(self, value: Any, names: frozenset[str] = frozenset()) -> None:
        """Add a value.

        Args:
            value: Of any kind.
            names: The names that the code which uses it reads, of which a module is only asked for these.
        """
        if type(value) in _PLAIN or isinstance(value, (np.generic, np.dtype)):
            self._say(type(value).__name__, repr(value))
            return
        key = (id(value), names) if isinstance(value, types.ModuleType) else id(value)
        if key in self._seen:
            self._say("again", str(self._seen[key]))
            return
        if len(self._seen) > _MOST_PARTS:
            raise NoDigest("it has too many parts")
        self._seen[key] = len(self._seen)
        self._kept.append(value)
        self._add_new(value, names)

    def _add_new(self, value: Any, names: frozenset[str]) -> None:
        match value:
            case types.FunctionType():
                self._add_function(value)
            case types.CodeType():
                self._add_code(value)
            case types.ModuleType():
                self._add_module(value, names)
            case types.MethodType():
                self._all("method", value.__func__, value.__self__)
            case functools.partial():
                self._all("partial", value.func, value.args, value.keywords)
            case property():
                self._all("property", value.fget, value.fset, value.fdel)
            case staticmethod() | classmethod():
                self._all(type(value).__name__, value.__func__)
            case slice() | range():
                self._all(type(value).__name__, value.start, value.stop, value.step)
            case tuple() | list():
                self._all(type(value), getattr(value, "__dict__", None), len(value), *value)
            case dict() if type(value) is dict:
                self._all("dict", len(value), *(part for item in value.items() for part in item))
            case set() | frozenset() if type(value) in (set, frozenset):
                self._say(type(value).__name__, *sorted(map(digest, value)))
            case enum.Enum():
                self._all("member", type(value), value.name)
            case np.ndarray() if type(value) is np.ndarray and value.dtype != object:
                self._say("array", value.dtype.str, str(value.shape), hashlib.sha256(value.tobytes()).hexdigest())
            case type():
                self._add_class(value)
            case _ if isinstance(value, _BUILT_IN):
                owner = getattr(value, "__self__", None)
                self._say("built in", str(getattr(value, "__module__", "")), getattr(value, "__qualname__", str(value)))
                if not isinstance(owner, types.ModuleType):
                    self.add(owner)
            case _ if _is_function_of_a_library(value):
                self._say("library", value.__module__, value.__name__)
            case _:
                self._add_object(value)

    def _add_function(self, function: types.FunctionType) -> None:
        code = function.__code__
        cells = [_contents(cell) for cell in function.__closure__ or ()]
        if _is_of_a_library(function.__globals__.get("__name__")):
            # A decorator's function may be a library's and what it decorates the user's.
            self._all("library", function.__globals__["__name__"], code.co_qualname, *cells)
            return
        self._all("function", code, function.__defaults__, function.__kwdefaults__, *cells)
        self.add({name: value for name, value in vars(function).items() if name != "__wrapped__"})
        names = frozenset(_names(code))
        for name in sorted(names):
            if name in function.__globals__:
                self._say("global", name)
                self.add(function.__globals__[name], names)
            elif hasattr(builtins, name):
                self._say("builtin", name)

    def _add_code(self, code: types.CodeType) -> None:
        self._say("code", code.co_code.hex(), str(code.co_flags))
        self._all(code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount)
        self._all(code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars, code.co_consts)
        self._say(code.co_exceptiontable.hex())

    def _add_module(self, module: types.ModuleType, names: frozenset[str]) -> None:
        self._say("module", module.__name__)
        if not _is_of_a_library(module.__name__):
            for name in sorted(names & vars(module).keys()):
                self._say(name)
                self.add(vars(module)[name], names)

    def _add_class(self, kind: type) -> None:
        self._say("class", kind.__module__, kind.__qualname__)
        if not _is_of_a_library(kind.__module__):
            self._all(len(kind.__mro__), *kind.__mro__[1:])
            for name in sorted(vars(kind).keys() - _NO_PART_OF_A_CLASS):
                if not name.startswith("_abc_"):
                    self._say(name)
                    self.add(vars(kind)[name])

    def _add_object(self, value: Any) -> None:
        if type(value).__module__.partition(".")[0] == "pandas":
            self._add_frame(value)
            return
        from keras import Variable, ops

        if isinstance(value, Variable) or ops.is_tensor(value):
            try:
                array = ops.convert_to_numpy(value)
            except Exception as error:
                raise NoDigest("it uses a tensor without a value") from error
            self._all("tensor", str(value.dtype), np.ascontiguousarray(array))
            return
        if not _is_open(type(value)) or not hasattr(value, "__dict__"):
            raise NoDigest(f"it uses a {type(value).__name__}")
        self._all("object", type(value), dict(vars(value)))

    def _add_frame(self, frame: Any) -> None:
        from pandas import DataFrame, Index, Series

        if type(frame) is DataFrame:
            self._all("frame", frame.index, frame.columns, *(frame.iloc[:, at] for at in range(frame.shape[1])))
        elif type(frame) is Series:
            self._all("series", frame.index, frame.name)
            self._add_column(frame)
        elif isinstance(frame, Index) and frame.nlevels == 1:
            self._all("index", type(frame), frame.name)
            self._add_column(frame)
        else:
            raise NoDigest(f"it uses a {type(frame).__name__}")

    def _add_column(self, column: Any) -> None:
        values = column.to_numpy()
        self._all(str(column.dtype), list(values) if values.dtype == object else values)

    def _all(self, *parts: Any) -> None:
        for part in parts:
            self.add(part)

    def _say(self, *texts: str) -> None:
        for text in texts:
            encoded = text.encode(errors="surrogatepass")
            self.hash.update(len(encoded).to_bytes(8) + encoded)


def _contents(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:
        return "nothing yet"


def _names(code: types.CodeType) -> Iterator[str]:
    """All names that code, and the code inside it, reads outside or of objects."""
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _names(constant)


def _is_open(kind: type) -> bool:
    """Whether objects of a class have nothing that is not among their attributes."""
    return all(one is object or _is_written_in_python(one) for one in kind.__mro__)


def _is_written_in_python(kind: type) -> bool:
    package = kind.__module__.partition(".")[0]
    file = getattr(sys.modules.get(kind.__module__), "__file__", None)
    return (
        kind.__flags__ & (_MADE_AT_RUN_TIME | _IMMUTABLE) == _MADE_AT_RUN_TIME
        and (package in _OPEN or not _is_of_a_library(package))
        and (file is None or file.endswith(".py"))
        and not vars(kind).get("__slots__")
    )


def _is_function_of_a_library(value: Any) -> bool:
    """Such as a function of jax, which is an object that holds its compiled forms."""
    return (
        callable(value)
        and isinstance(getattr(value, "__name__", None), str)
        and _is_of_a_library(type(value).__module__)
        and _is_of_a_library(getattr(value, "__module__", None))
    )


def _is_of_a_library(module: Any) -> bool:
    package = module.partition(".")[0] if isinstance(module, str) else ""
    return package == "flatout" or (package in (*LIBRARIES, *sys.stdlib_module_names) and _is_installed(package))


def _is_installed(package: str) -> bool:
    """Whether a package lies where Python and its packages do: a file of the user may have the name of one."""
    if package not in sys.modules:
        return False
    file = getattr(sys.modules[package], "__file__", None)
    if file is None:
        return package in sys.builtin_module_names
    places = Path(file).parts
    return "site-packages" in places or "dist-packages" in places or file.startswith(_STANDARD)
