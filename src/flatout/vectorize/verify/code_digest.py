"""A digest of all that a function's results depend on: its code, what it closes over, the globals and helpers it uses.

Of libraries that are named by their version only the names count. What cannot be digested for certain is not: modules
of the user as such, names that are looked up while it runs, files, generators of random numbers, large tables.
"""

from __future__ import annotations

import abc
import builtins
import dis
import enum
import functools
import hashlib
import sys
import sysconfig
import types
from pathlib import Path
from typing import Any

import numpy as np

from flatout.pysource.code_names import names_in

# Whoever asks for a digest adds the versions of these.
LIBRARIES = ("keras", "jax", "jaxlib", "tensorflow", "torch", "numpy", "scipy", "flatout")
# Of the standard library: what computes, and has nothing of the world outside.
_COMPUTING = ("builtins", "math", "cmath", "functools", "itertools", "operator", "collections", "abc", "enum", "typing")
# Libraries whose objects keep all that they are in their attributes.
_OPEN = ("keras", "flatout", "torch", "abc", "typing", "enum")
# Names by which code reaches what is not written in it.
_REACHING = frozenset(
    (
        *("globals", "locals", "vars", "getattr", "eval", "exec", "compile", "__import__", "__dict__", "__globals__"),
        *("open", "input", "load", "fromfile", "loadtxt", "genfromtxt", "memmap", "environ", "getenv", "id", "hash"),
    )
)
_PLAIN = (types.NoneType, bool, int, float, complex, str, bytes, types.EllipsisType)
_BUILT_IN = (
    types.BuiltinFunctionType,
    types.WrapperDescriptorType,
    types.MethodDescriptorType,
    types.MethodWrapperType,
    types.GetSetDescriptorType,
    types.MemberDescriptorType,
    types.ClassMethodDescriptorType,
)
# Of a class: where it stands and what Python keeps there.
_NO_PART_OF_A_CLASS = frozenset(
    ("__dict__", "__weakref__", "__doc__", "__module__", "__annotations__", "__firstlineno__", "__static_attributes__")
)
_METACLASSES = (type, abc.ABCMeta, enum.EnumMeta)
# Py_TPFLAGS_HEAPTYPE and Py_TPFLAGS_IMMUTABLETYPE: classes of Python code have the first alone.
_MADE_AT_RUN_TIME, _IMMUTABLE = 1 << 9, 1 << 8
# A digest must cost less than what it spares.
_MOST_PARTS = 20_000
_MOST_BYTES = 16 * 2**20
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
        self._parts = self._bytes = 0
        self._seen: dict[Any, int] = {}
        # What was seen is kept: its place in memory must not become another's.
        self._kept: list[Any] = []

    def add(self, value: Any) -> None:
        self._parts += 1
        if self._parts > _MOST_PARTS:
            raise NoDigest("it has too many parts")
        if type(value) in _PLAIN or isinstance(value, np.generic):
            self._say(type(value).__name__, repr(value))
            return
        if id(value) in self._seen:
            self._say("again", str(self._seen[id(value)]))
            return
        self._seen[id(value)] = len(self._seen)
        self._kept.append(value)
        self._add_new(value)

    def _add_new(self, value: Any) -> None:
        match value:
            case types.FunctionType():
                self._add_function(value)
            case types.CodeType():
                self._add_code(value)
            case types.ModuleType():
                self._add_module(value)
            case types.MethodType():
                self._all("method", value.__func__, value.__self__)
            case functools.partial() if type(value) is functools.partial:
                self._all("partial", value.func, value.args, value.keywords)
            case property():
                self._all("property", value.fget, value.fset, value.fdel)
            case staticmethod() | classmethod():
                self._all(type(value).__name__, value.__func__)
            case slice() | range():
                self._all(type(value).__name__, value.start, value.stop, value.step)
            case tuple() | list() if type(value) in (tuple, list):
                self._all(type(value).__name__, len(value), *value)
            case dict() if type(value) is dict:
                self._all("dict", len(value), *(part for item in value.items() for part in item))
            case set() | frozenset() if type(value) in (set, frozenset) and all(type(one) in _PLAIN for one in value):
                self._say(type(value).__name__, *sorted(f"{type(one).__name__} {one!r}" for one in value))
                self._parts += len(value)
            case np.ndarray():
                self._add_array(value)
            case np.dtype():
                self._say("dtype", repr(value))
            case enum.Enum():
                self._all("member", type(value), value.name, dict(vars(value)))
            case type():
                self._add_class(value)
            case _ if isinstance(value, _BUILT_IN):
                self._add_built_in(value)
            case _ if _is_found_in_a_library(value):
                self._say("library", *map(str, _where(value)))
            case _:
                self._add_object(value)

    def _add_function(self, function: types.FunctionType) -> None:
        code = function.__code__
        cells = [_contents(cell) for cell in function.__closure__ or ()]
        if _is_of_a_library(function.__globals__.get("__name__")):
            # A decorator's function may be a library's and what it decorates the user's.
            name = str(function.__globals__["__name__"])
            self._all("library", name, code.co_qualname, function.__defaults__, function.__kwdefaults__, *cells)
            return
        names = frozenset(names_in(code))
        if reaching := sorted(names & _REACHING):
            raise NoDigest(f"it uses {reaching[0]!r}")
        self._all("function", code, function.__defaults__, function.__kwdefaults__, *cells)
        self.add({name: value for name, value in vars(function).items() if name != "__wrapped__"})
        for name in sorted(names):
            if name in function.__globals__:
                self._all("global", name, function.__globals__[name])
            elif hasattr(builtins, name):
                self._say("builtin", name)

    def _add_code(self, code: types.CodeType) -> None:
        for instruction in dis.get_instructions(code):
            if instruction.opname == "IMPORT_NAME" and not _is_of_a_library(instruction.argval):
                raise NoDigest(f"it imports {instruction.argval!r} while it runs")
        self._say("code", code.co_code.hex(), str(code.co_flags), code.co_exceptiontable.hex())
        self._all(code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount)
        self._all(code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars, code.co_consts)

    def _add_module(self, module: types.ModuleType) -> None:
        if not _is_of_a_library(module.__name__):
            raise NoDigest(f"it uses the module {module.__name__!r}, of which anything may be read")
        self._say("module", module.__name__)

    def _add_class(self, kind: type) -> None:
        self._say("class", kind.__module__, kind.__qualname__)
        if _is_of_a_library(kind.__module__) and not (kind.__module__ == "builtins" and _is_made_at_run_time(kind)):
            return
        if not _is_of_a_library(type(kind).__module__) or not issubclass(type(kind), _METACLASSES):
            raise NoDigest(f"{kind.__qualname__} is a class of a class of its own")
        self._all(len(kind.__mro__), *kind.__mro__[1:])
        for name in sorted(vars(kind).keys() - _NO_PART_OF_A_CLASS):
            if not name.startswith("_abc_"):
                self._all(name, vars(kind)[name])

    def _add_built_in(self, value: Any) -> None:
        owner, module = getattr(value, "__self__", None), getattr(value, "__module__", None)
        if owner is not None:
            self.add(owner)
        elif module is not None and not _is_of_a_library(module):
            raise NoDigest(f"it uses {value!r}")
        self._say("built in", str(module), getattr(value, "__qualname__", value.__name__))

    def _add_array(self, array: np.ndarray) -> None:
        if type(array) is not np.ndarray or array.dtype.kind not in "biufcmMSU":
            raise NoDigest(f"it uses an array of {array.dtype}")
        self._bytes += array.nbytes
        if self._bytes > _MOST_BYTES:
            raise NoDigest("it has too many bytes")
        self._say("array", array.dtype.str, str(array.shape), hashlib.sha256(array.tobytes()).hexdigest())

    def _add_object(self, value: Any) -> None:
        from keras import Variable, ops

        if isinstance(value, Variable) or ops.is_tensor(value):
            if value.ndim and np.prod(value.shape) * 8 > _MOST_BYTES:
                raise NoDigest("it has too many bytes")
            # A tensor without a value, of a program that is being traced, raises.
            array = np.ascontiguousarray(ops.convert_to_numpy(value))
            self._all("tensor", str(value.dtype), getattr(value, "weak_type", None), array)
            return
        if not _is_open(type(value)) or not hasattr(value, "__dict__"):
            raise NoDigest(f"it uses a {type(value).__name__}")
        self._all("object", type(value), dict(vars(value)))

    def _all(self, *parts: Any) -> None:
        for part in parts:
            self.add(part)

    def _say(self, *texts: str) -> None:
        for text in texts:
            encoded = text.encode(errors="surrogatepass")
            self._bytes += len(encoded)
            if self._bytes > _MOST_BYTES:
                raise NoDigest("it has too many bytes")
            self.hash.update(len(encoded).to_bytes(8) + encoded)


def _contents(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:
        return "nothing yet"


def _is_open(kind: type) -> bool:
    """Whether objects of a class have nothing that is not among their attributes."""
    return all(one is object or _is_written_in_python(one) for one in kind.__mro__)


def _is_written_in_python(kind: type) -> bool:
    package = kind.__module__.partition(".")[0]
    file = getattr(sys.modules.get(kind.__module__), "__file__", None)
    return (
        _is_made_at_run_time(kind)
        and (package in _OPEN or (package not in sys.stdlib_module_names and not _is_of_a_library(package)))
        and (file is None or file.endswith(".py"))
        and not vars(kind).get("__slots__")
    )


def _is_made_at_run_time(kind: type) -> bool:
    return kind.__flags__ & (_MADE_AT_RUN_TIME | _IMMUTABLE) == _MADE_AT_RUN_TIME


def _is_found_in_a_library(value: Any) -> bool:
    """Whether a library has this very object under its name, such as a function of jax or numpy."""
    module, name = _where(value)
    return _is_of_a_library(module) and getattr(sys.modules.get(str(module)), str(name), None) is value


def _where(value: Any) -> tuple[Any, Any]:
    if isinstance(value, np.ufunc):
        return "numpy", value.__name__
    return getattr(value, "__module__", None), getattr(value, "__name__", None)


def _is_of_a_library(module: Any) -> bool:
    package = module.partition(".")[0] if isinstance(module, str) else ""
    return package == "flatout" or (package in (*LIBRARIES, *_COMPUTING) and _is_installed(package))


def _is_installed(package: str) -> bool:
    """Whether a package lies where Python and its packages do: a file of the user may have the name of one."""
    if package not in sys.modules:
        return False
    file = getattr(sys.modules[package], "__file__", None)
    if file is None:
        return package in sys.builtin_module_names
    places = Path(file).parts
    return "site-packages" in places or "dist-packages" in places or file.startswith(_STANDARD)
